"""Promise: with a baseline, what is known does not fail a check, what is new does, and moving lines makes nothing new."""

import json
from pathlib import Path

import pytest

from dynotune.audit.judging.baseline import baseline_text, read_baseline
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.errors import ConfigError
from tests.audit.made_up import a_finding

TEXTS = {"sft.yaml": "a: 1\n\noptim: adamw_torch\n"}
MOVED = {"sft.yaml": "a: 1\n\n\n\noptim:   adamw_torch\n"}


def kept(folder: Path, text: str) -> Path:
    path = folder / "baseline.json"
    path.write_text(text)
    return path


def test_known_findings_are_known_again_after_lines_moved_and_figures_changed(tmp_path: Path) -> None:
    baseline = read_baseline(kept(tmp_path, baseline_text([a_finding()], TEXTS, str(tmp_path), tmp_path)))
    moved = a_finding(place=Place("sft.yaml", 5, key="optim"), message="It costs 3 % here.")
    split = baseline.split([moved], MOVED, str(tmp_path))
    assert (split.new, split.known, list(split.remarks())) == ([], [moved], [])


def test_new_ones_are_new_and_those_that_went_are_told(tmp_path: Path) -> None:
    baseline = read_baseline(
        kept(tmp_path, baseline_text([a_finding(), a_finding("ATT001")], TEXTS, str(tmp_path), tmp_path))
    )
    twice = [a_finding(), a_finding(message="of a second job")]
    split = baseline.split(twice, TEXTS, str(tmp_path))
    assert (len(split.new), len(split.known), split.gone) == (1, 1, ("ATT001 sft.yaml `optim`",))
    assert list(split.remarks()) == ["1 of the baseline's findings are gone: write it again to keep it short."]


def test_a_rule_knows_again_what_those_that_it_took_over_had_found(tmp_path: Path) -> None:
    heir = rules()["CFG013"]
    assert {"PRC001", "HST050"} <= set(heir.formerly)
    before = [a_finding("PRC001"), a_finding("HST050"), a_finding("HST050"), a_finding("CFG013")]
    baseline = read_baseline(kept(tmp_path, baseline_text(before, TEXTS, str(tmp_path), tmp_path)))
    now = [a_finding("CFG013")] * 5
    split = baseline.split(now, TEXTS, str(tmp_path))
    assert (len(split.new), len(split.known), split.gone) == (1, 4, ())
    assert list(split.remarks()) == [
        "in the baseline, HST050 is a part of CFG013 now, PRC001 is a part of CFG013 now: write it again to name them so."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "dynotune audit baseline", "version": 9, "findings": []}',
        '{"format": "dynotune audit baseline", "version": 2, "findings": [{"code": 1}]}',
    ],
)
def test_what_is_no_baseline_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="rite it again"):
        read_baseline(kept(tmp_path, text))
    with pytest.raises(ConfigError, match="--write_baseline"):
        read_baseline(tmp_path / "none.json")


def test_it_is_json_that_people_can_read() -> None:
    (row,) = json.loads(baseline_text([a_finding()], TEXTS, "", Path()))["findings"]
    assert (row["code"], row["where"]) == ("OPT001", "sft.yaml `optim`")
