"""Promise: whatever a profile finds is found by exactly one rule, with its share of the step; a clean run has none."""

import json
import sys
from pathlib import Path

import pytest

from dynotune.audit.command import named_in
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Finding, Level, Risk
from dynotune.audit.judging.rules_over import judge
from dynotune.audit.registry import rules
from dynotune.audit.rule import Subject
from dynotune.cli import run
from dynotune.measure.timeline import DATA_MARK
from dynotune.profile import remedies
from dynotune.profile.findings import Finding as Found
from dynotune.profile.findings import Findings
from dynotune.profile.record import Record
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
    assert (one.code, one.evidence.level, one.stake.what) == ("HST090", Level.PROFILED, AtStake.TIME)
    assert one.stake.high == pytest.approx(0.39)
    assert one.remedy.risk is Risk.SAFE
    assert "dynotune bench" in one.remedy.measure


def test_products_in_float32_are_for_who_accepts_other_rounding() -> None:
    (one,) = found(record(busy(dtypes=FP32)))
    assert (one.code, one.remedy.risk) == ("PRC090", Risk.NUMERIC)


@pytest.mark.parametrize("name", sorted({*remedies.OURS, *remedies.THEIRS, "periodic", "periodic-slow-down"}))
def test_each_name_of_a_profile_has_one_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Findings("", 1.0, (), "", (Found(name, "it was seen", 0.5),), (), (), ())
    monkeypatch.setattr("dynotune.profile.analyse.analyse", lambda record: one)
    (finding,) = found(record())
    assert finding.message == "It was seen."


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
    assert "PAD090" in [one["code"] for one in result["findings"]]
    assert result["jobs"]


def test_a_command_of_which_nothing_is_seen_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--json", "--select", "OPT001", "--", sys.executable, "-c", "pass"]) == 2
    (one,) = json.loads(capfd.readouterr().out)["not_read"]
    assert "was not profiled" in one["why"]
