"""Promise: rules on data count rows, and say nothing of few or of what is guessed."""

from typing import Any

import pytest

from dynotune.audit.facts.data import ESTIMATED, DataFacts
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding
from tests.audit.rules.facts import UNKNOWN, Default, a_job, findings, not_checked, some_data

REAL: dict[str, Any] = {"tokenizer": "tok", "lengths": [100] * 9 + [500], "first_labels": [10] * 9 + [400]}


LOST, CUT = "lose every token", " cuts "


def cut(data: DataFacts, job: Job, said: str) -> list[Finding]:
    """What `max_length` does to these rows, of findings that say so."""
    return [one for one in findings("DAT002", data, Project(".", [job], data=[data])) if said in one.message]


def test_rows_that_lose_every_label() -> None:
    data, job = some_data(**REAL), a_job(max_length=300)
    (found,) = cut(data, job, LOST)
    assert "1 of 10 rows (10.0%)" in found.message
    assert "500" in found.remedy.text


@pytest.mark.parametrize(
    "other",
    [
        {"max_length": 401},
        {"max_length": UNKNOWN},
        {"truncation_mode": "keep_end"},
        {"packing": True, "packing_strategy": "bfd_split"},
    ],
)
def test_rows_that_keep_a_label(other: dict[str, Any]) -> None:
    data, job = some_data(**REAL), a_job(**{"max_length": 300} | other)
    assert not cut(data, job, LOST)


def test_estimated_lengths_do_not_count_lost_rows() -> None:
    data, job = some_data(**REAL | {"tokenizer": ESTIMATED}), a_job(max_length=300)
    assert not cut(data, job, LOST)
    assert "tokenizer" in not_checked("DAT002", data, Project(".", [job], data=[data]))[0].why


def test_rows_that_are_cut() -> None:
    data, job = some_data(**REAL), a_job(max_length=Default(300))
    (found,) = cut(data, job, CUT)
    assert "(the default) cuts 10%" in found.message
    estimated = some_data(**REAL | {"tokenizer": ESTIMATED})
    assert cut(estimated, job, CUT)
    for length in (500, 400):
        near = a_job(max_length=length)
        assert not cut(estimated, near, CUT)
        assert bool(cut(data, near, CUT)) is (length == 400)


def ledger(used: int = 100, **notices: int) -> dict[str, Any]:
    named = {name.replace("_", "-"): count for name, count in notices.items()}
    return {"rows_used": used, "notices": named, "first_places": {name: ["a.jsonl:7"] for name in named}}


def test_duplicates() -> None:
    (found,) = findings("DAT003", some_data(ledger=ledger(exact_duplicate=4, near_duplicate=3)))
    assert "7 of 100 rows (7.0%)" in found.message
    assert "a.jsonl:7" in found.message
    for few in (ledger(exact_duplicate=4), ledger(10_000, exact_duplicate=50), {}):
        assert not findings("DAT003", some_data(ledger=few))


def test_rows_shared_with_the_evaluation() -> None:
    train, test = some_data("train.jsonl", contents=range(100)), some_data("data/test.jsonl", contents=range(95, 110))
    project = Project(".", data=[train, test])
    (found,) = findings("DAT004", test, project)
    assert "5 of 15 rows" in found.message
    assert found.place == test.place
    apart = some_data("test.jsonl", contents=range(200, 210))
    assert not findings("DAT004", apart, Project(".", data=[train, apart]))
    latest = some_data("latest.jsonl", contents=range(100))
    assert not findings("DAT004", latest, Project(".", data=[train, latest]))
    job = a_job(dataset_name="train.jsonl", eval_dataset_name="latest.jsonl")
    assert findings("DAT004", latest, Project(".", [job], data=[train, latest]))
    assert "--data" in not_checked("DAT004", Project(".", [job]))[0].why


def test_contradictions() -> None:
    (found,) = findings("DAT003", some_data(ledger=ledger(conflicting_answer=9)))
    assert "another answer" in found.message
    assert findings("DAT003", some_data(ledger=ledger(contradicting_pair=1)))
    assert not findings("DAT003", some_data(ledger=ledger(conflicting_answer=4)))
    (found,) = findings("DAT003", some_data(ledger=ledger(exact_duplicate=50)))
    assert "repeat an earlier one" in found.message


def test_a_cache_that_is_thrown_away() -> None:
    job = a_job(Trainer.LLAMA_FACTORY, keys={"overwrite_cache": True})
    (found,) = findings("HST006", job)
    assert found.remedy.changes[0].value is False
    small = some_data(lengths=[100] * 10)
    assert not findings("HST006", job, Project(".", [job], data=[small]))
    for value in (False, UNKNOWN):
        assert not findings("HST006", a_job(Trainer.LLAMA_FACTORY, keys={"overwrite_cache": value}))
    assert not findings("HST006", a_job(Trainer.TRL, keys={"overwrite_cache": True}))
