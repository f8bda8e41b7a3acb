"""Promise: whatever a profile finds is found by one rule, under its name, with its share; a clean run has none."""

import json
import sys
from pathlib import Path

import pytest

from dynotune.audit.command import named_in
from dynotune.audit.cost import together
from dynotune.audit.explain import page
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Finding, Level, Risk
from dynotune.audit.judging.rules_over import judge
from dynotune.audit.registry import rules
from dynotune.audit.rule import Subject
from dynotune.audit.rules.msr090_profiled import NAMES
from dynotune.audit.show.words import where
from dynotune.cli import run
from dynotune.measure.timelines.rows import DATA_MARK
from dynotune.profile.analysis import remedies
from dynotune.profile.analysis.findings import Finding as Found
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.records.record import Record
from tests.profile.made import FP32, busy, record

RULES = {code: rule for code, rule in rules().items() if rule.subject is Subject.PROFILE}


def found(of: Record) -> list[Finding]:
    return list(judge(Project(".", profile=of), RULES).findings)


def test_a_clean_run_passes_all() -> None:
    judged = judge(Project(".", profile=record()), RULES)
    assert not judged.findings
    assert set(judged.passed) == set(RULES)


def test_a_wait_for_data_is_found_with_its_share() -> None:
    step = busy(600, 6).host(DATA_MARK, 600, 990, marked=True)
    step.microseconds = 1000
    (one,) = found(record(step))
    assert (one.code, one.evidence.level, one.stake.what) == ("MSR090", Level.PROFILED, AtStake.TIME)
    assert one.stake.high == pytest.approx(0.39)
    assert one.remedy.risk is Risk.SAFE
    assert "dynotune bench" in one.remedy.measure


def test_products_in_float32_are_for_who_accepts_other_rounding() -> None:
    (one,) = found(record(busy(dtypes=FP32)))
    assert (one.code, one.remedy.risk) == ("MSR090", Risk.NUMERIC)


PERIODIC = "periodic-slow-down"


@pytest.mark.parametrize("name", sorted({*remedies.OURS, *remedies.THEIRS, PERIODIC, "of-a-later-version"}))
def test_each_name_of_a_profile_is_found_once_and_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Findings("", 1.0, (), "", (Found(name, "it was seen", 0.5),), (), (), ())
    monkeypatch.setattr("dynotune.profile.analysis.analyse.analyse", lambda record: one)
    (finding,) = found(record())
    assert finding.message == "It was seen."
    assert where(finding) == f"the profile `{name}`"


def test_what_a_profile_names_counts_each_in_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when each name was a rule: half of a step, and a half of what that leaves."""
    both = (Found("host-bound", "it was seen", 0.5), Found("slow-loader", "it was seen", 0.5))
    one = Findings("", 1.0, (), "", both, (), (), ())
    monkeypatch.setattr("dynotune.profile.analysis.analyse.analyse", lambda record: one)
    assert together(found(record())) == pytest.approx(0.75)


def test_the_page_lists_what_a_profile_can_name() -> None:
    assert set(NAMES) == {*remedies.OURS, *remedies.THEIRS, PERIODIC}
    assert all(f"- `{name}`: " in page(rules()["MSR090"]) for name in NAMES)


def test_files_that_a_command_names_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "a.yaml", "data.bin"):
        (tmp_path / name).write_text("")
    words = ["python", "train.py", "--config=a.yaml", "none.py", "data.bin"]
    assert named_in(words) == [Path("train.py"), Path("a.yaml")]


@pytest.mark.long
def test_a_command_is_profiled_and_its_script_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[1] / "profile" / "foreign" / "scripts" / "hugging_face.py"
    words = ["audit", "--json", "--", sys.executable, str(script), '{"fill": 0.4}', str(tmp_path)]
    assert run(words) == 1
    result = json.loads(capfd.readouterr().out)
    assert ("MSR090", "low-fill") in [(one["code"], one["place"]["key"]) for one in result["findings"]]
    assert result["jobs"]


def test_a_command_of_which_nothing_is_seen_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--json", "--select", "OPT001", "--", sys.executable, "-c", "pass"]) == 2
    (one,) = json.loads(capfd.readouterr().out)["not_read"]
    assert "was not profiled" in one["why"]
