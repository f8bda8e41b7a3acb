"""Promise: what goes wrong on one rank alone is answered by all, at the same step and alike: memory, steps not finite."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parallel import faulty
from tests.parallel.processes import on_ranks


def rows_of(run: Path, key: str = "loss") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if key in row]


def layouts(run: Path) -> list[int]:
    return sorted(int(rung) for rung in json.loads((run / "plan.json").read_text())["layout"]["ladder"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank, with enough memory."""
    folder = tmp_path_factory.mktemp("alone")
    faulty.short_of_memory(folder, (), 0)
    return folder / "run"


@pytest.mark.parametrize("victims", [(1,), (0,)])
def test_memory_that_one_rank_lacks_makes_all_take_the_step_again_alike(
    alone: Path, tmp_path: Path, victims: tuple[int, ...]
) -> None:
    on_ranks(2, faulty.short_of_memory, tmp_path, victims, 200, folder=tmp_path)
    ours, theirs = rows_of(tmp_path / "run"), rows_of(alone)
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["num_tokens"] == b["num_tokens"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {one["step"] for one in summary["out_of_memory"]} == {2}
    assert (tmp_path / "weights-0").read_text() == (tmp_path / "weights-1").read_text()
    told = (tmp_path / "told-0").read_text()
    assert told.count("step 2 is taken again") == len(summary["out_of_memory"])


def test_enough_memory_lowers_nothing(alone: Path, tmp_path: Path) -> None:
    on_ranks(2, faulty.short_of_memory, tmp_path, (), 200, folder=tmp_path)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["out_of_memory"] == []


def test_an_evaluation_that_lacks_memory_on_one_rank_counts_every_document_once(alone: Path, tmp_path: Path) -> None:
    on_ranks(2, faulty.short_of_memory, tmp_path, (1,), 200, "evaluation", folder=tmp_path)
    ours, theirs = rows_of(tmp_path / "run", "eval_loss"), rows_of(alone, "eval_loss")
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a["eval_loss"] == pytest.approx(b["eval_loss"], rel=1e-5)
    assert "short" in (tmp_path / "short-1").read_text()


@pytest.mark.parametrize("victim", [0, 1])
def test_memory_that_one_rank_lacks_in_the_optimizer_ends_all(tmp_path: Path, victim: int) -> None:
    codes = on_ranks(2, faulty.short_in_the_optimizer, tmp_path, victim, folder=tmp_path, check=False)
    assert list(codes) == [2, 2]
    assert "out of memory in optimizer at step 2" in (tmp_path / f"out-{victim}").read_text()


@pytest.mark.parametrize("victims", [(1,), (0,), (0, 1)])
@pytest.mark.parametrize("once", [True, False])
def test_a_step_that_is_not_finite_stops_all(tmp_path: Path, victims: tuple[int, ...], once: bool) -> None:
    codes = on_ranks(2, faulty.not_finite, tmp_path, victims, once, "stop", folder=tmp_path, check=False)
    assert list(codes) == [2, 2]
    run = tmp_path / "run"
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-2", "step-3"]
    report = json.loads((run / "nonfinite.json").read_text())
    assert report["step"] == 4
    assert len(report["examples"]) == 3
    assert len(rows_of(run, "nonfinite")) == 1
    documents = [one["documents"] for one in report["examinations"]]
    assert sum(documents) == 3
    assert min(documents) > 0
    told = (tmp_path / "out-0").read_text() + (tmp_path / "out-1").read_text()
    assert told.count("Step 4 is not finite") == 1
    [culprit] = [line for line in told.splitlines() if "Likely culprit" in line]
    if once:
        assert "nothing that repeats" in culprit
        return
    # rank 0's documents are finite where rank 1 alone is at fault, and that must not be what is told
    assert ("the model's weights" in culprit) == (victims == (0, 1))
    for rank, one in enumerate(report["examinations"]):
        assert len(one["alone"]) == (documents[rank] if rank in victims else 0)
        assert all((f" {place}" in culprit) == (len(victims) == 1) for place in one["alone"])


@pytest.mark.parametrize("victims", [(1,), (0,)])
def test_a_step_that_is_not_finite_is_left_out_by_all(tmp_path: Path, victims: tuple[int, ...]) -> None:
    on_ranks(2, faulty.not_finite, tmp_path, victims, True, "skip", folder=tmp_path)
    assert [(tmp_path / f"steps-{rank}").read_text() for rank in range(2)] == ["5", "5"]
    assert [row["step"] for row in rows_of(tmp_path / "run")] == [1, 2, 3, 5]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["skipped_steps"] == [4]


def test_what_is_on_and_lacks_on_one_rank_what_it_needs_stops_all_with_what_they_have(tmp_path: Path) -> None:
    codes = on_ranks(2, faulty.on_without_what_it_needs, tmp_path, (1,), folder=tmp_path, check=False)
    assert list(codes) == [2, 2]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]
    told = "".join((tmp_path / f"out-{rank}").read_text() for rank in range(2))
    assert told.count("`speedups: {needs_the_head: on}`: needs_the_head cannot run: it needs labelled_rows_head") == 1
