"""Promise: what is written for programs and for people holds everything, and nothing of an audited file acts in it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from dynotune.audit.place import Place
from dynotune.audit.run import Result
from dynotune.audit.show.as_json import json_text
from dynotune.audit.show.html import html
from dynotune.audit.show.markdown import markdown
from dynotune.audit.show.sarif import sarif_text
from tests.audit.made_up import a_finding
from tests.audit.show import made
from tests.report.html_pages import Page, require_alone, require_readable

KINDS = pytest.mark.parametrize("make", made.EVERY.values(), ids=made.EVERY)


@KINDS
def test_json_holds_every_finding(make: Callable[[], Result]) -> None:
    found = json.loads(json_text(make()))
    assert len(found["findings"]) == len(make().findings)
    assert {"passed", "not_checked", "plan", "bottleneck", "next", "suppressed", "together"} <= set(found)
    marks = [one["fingerprint"] for one in found["findings"]]
    assert len(set(marks)) == len(marks)


@KINDS
def test_sarif_has_the_form_of_the_standard(make: Callable[[], Result]) -> None:
    require_sarif(json.loads(sarif_text(make(), lambda finding: {"sft.yaml": [(3, 1, 3, 19, "optim: x")]})))


def test_the_form_is_checked() -> None:
    """Negative control."""
    log = json.loads(sarif_text(made.many(), lambda finding: {}))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    with pytest.raises(AssertionError):
        require_sarif(log)


def require_sarif(log: Any) -> None:
    """The parts of the schema of 2.1.0 that we use (sections 3.13 to 3.58 of the standard)."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", driver["semanticVersion"])
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
    for note in run["invocations"][0]["toolExecutionNotifications"]:
        assert note["level"] in ("none", "note", "warning", "error")
        assert note["message"]["text"]
    for one in run["results"]:
        assert ids[one["ruleIndex"]] == one["ruleId"]
        assert one["level"] in ("none", "note", "warning", "error")
        assert one["message"]["text"]
        assert all(isinstance(mark, str) for mark in one["partialFingerprints"].values())
        for suppression in one["suppressions"]:
            assert suppression["kind"] in ("inSource", "external")
        for location in [*one.get("locations", []), *one.get("relatedLocations", [])]:
            physical = location["physicalLocation"]
            require_artifact(physical["artifactLocation"], run)
            region = physical.get("region", {"startLine": 1})
            assert region["startLine"] >= 1
            assert all(value >= 1 for value in region.values())
            assert region.get("endLine", region["startLine"]) >= region["startLine"]
        for fix in one.get("fixes", []):
            for change in fix["artifactChanges"]:
                require_artifact(change["artifactLocation"], run)
                assert change["replacements"]
                assert all("deletedRegion" in each for each in change["replacements"])


def require_artifact(location: Any, run: Any) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", location["uri"]), location
    assert location["uriBaseId"] in run["originalUriBaseIds"]


def test_a_suppressed_finding_is_in_sarif_with_its_reason() -> None:
    results = json.loads(sarif_text(made.result(), lambda finding: {}))["runs"][0]["results"]
    assert [one["suppressions"][0]["justification"] for one in results] == ["meant"]


@KINDS
def test_the_page_stands_alone_and_can_be_read(make: Callable[[], Result]) -> None:
    page = Page(html(make()))
    require_alone(page)
    require_readable(page)
    assert "Checked" in page.words


def test_the_page_shows_the_lines_that_it_is_about() -> None:
    words = Page(html(made.result(a_finding()))).words
    assert "> 3 optim: adamw_torch" in words


@KINDS
def test_markdown_has_no_html_links_or_mentions_of_audited_files(make: Callable[[], Result]) -> None:
    text = markdown(make())
    outside = re.sub(r"`[^`\n]*`", "", text.replace("\\`", ""))
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", outside)
    assert not re.search(r"@\w", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert all(line.isprintable() or "\u200b" in line for line in text.splitlines())
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)


def test_markdown_has_the_plan() -> None:
    text = markdown(made.result(a_finding(place=Place("a.yaml", 3), measure="dynotune bench --config a.yaml")))
    assert "### In which order" in text
    assert "Measure: `dynotune bench --config a.yaml`" in text
