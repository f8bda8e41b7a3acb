"""Promise: every rule keeps the contract, so that output, pages and fixes can walk them."""

import pytest

from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.finding import AtStake, Finding, Severity, Stake, severity
from dynotune.audit.place import Place
from dynotune.audit.registry import rules
from dynotune.audit.rule import Rule, Subject

WITHOUT_FILES = {Subject.ENVIRONMENT, Subject.PROFILE, Subject.DATA, Subject.RUN}


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.code)
def test_a_rule_can_be_read(rule: Rule) -> None:
    """A page with all parts, and both examples where a file can show them."""
    page = rule.page
    assert all((rule.summary, page.what, page.why, page.detected, page.proven, page.deliberate))
    assert rule.summary.endswith(".")
    if rule.subject not in WITHOUT_FILES:
        assert rule.bad
        assert rule.good
        assert rule.bad.says


def test_severity_is_from_what_is_at_stake() -> None:
    assert severity(Stake(AtStake.RESULT)) is Severity.ERROR
    assert severity(Stake(AtStake.TIME, 0.0, 0.04)) is Severity.NOTE
    assert severity(Stake(AtStake.TIME, 0.0, 0.3)) is Severity.WARNING
    assert severity(Stake(AtStake.TIME)) is Severity.WARNING
    assert severity(Stake(AtStake.CLARITY)) is Severity.NOTE


def job_with(**values: object) -> Job:
    home = Place("sft.yaml")
    settings = {name: Setting(name, value, Place("sft.yaml", 3, key=name)) for name, value in values.items()}
    return Job(Trainer.TRL, Method.SFT, settings, home=home)


def test_a_rule_finds_what_is_so_and_nothing_else() -> None:
    check = rules()["OPT001"].check

    def said(job: Job) -> list[object]:
        project = Project(".", jobs=(job,))
        return list(check(project, project))

    (found,) = said(job_with(optim="adamw_torch"))
    assert isinstance(found, Finding)
    assert found.place == Place("sft.yaml", 3, key="optim")
    assert found.remedy.changes[0].value == "adamw_torch_fused"
    assert not said(job_with(optim="adamw_torch_fused"))
    assert not said(job_with())


def test_a_default_is_set_in_the_jobs_home() -> None:
    job = Job(
        Trainer.AXOLOTL,
        Method.SFT,
        {"optim": Setting("optim", "adamw_torch", Place(""), Known.DEFAULT)},
        home=Place("run.yml"),
        native={"optim": "optimizer"},
    )
    change = job.set("optim", "adamw_torch_fused")
    assert (change.place, change.name) == (Place("run.yml"), "optimizer")
