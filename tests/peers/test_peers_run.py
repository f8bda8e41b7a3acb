"""A row is measured once, goes on where it was, and loses only the arm that ran; what is missing is said."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.peers import __main__ as peers
from benchmarks.peers.keep import DIRTY, Kept, key_of, provenance, settings_of, without_folders
from benchmarks.peers.rows import ROWS, Row

ROW = "packed-8k"
FIGURES = {"ms_per_step": 1.0, "real_tokens_per_second": 2.0, "peak_gib": 3.0}
GONE = {"failed": "torch.OutOfMemoryError: CUDA out of memory."}


class Machine:
    """Runs no process: hands out results by arm, and remembers which arms were asked for."""

    def __init__(self, results: dict[str, Any] | None = None) -> None:
        self.results, self.ran = results or {}, list[str]()

    def __call__(self, row: str, arm: str, args: Any) -> dict[str, Any]:
        self.ran.append(arm)
        result = self.results.get(arm, FIGURES)
        if isinstance(result, BaseException):
            raise result
        return dict(result)


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(peers, "missing", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # rehearsals go without

    def call(machine: Machine, *more: str) -> list[str]:
        monkeypatch.setattr(peers, "run_arm", machine)
        machine.ran.clear()
        peers.main(["--row", ROW, "--dry", "--commit", "c", "--out", str(tmp_path), *more])
        return machine.ran

    return call


ARMS = list(ROWS[ROW].arms)


def test_what_is_there_is_not_measured_again(measure: Any) -> None:
    assert measure(Machine()) == ARMS
    assert measure(Machine()) == []
    assert measure(Machine(), "--only", "trl default", "--again") == ["trl default"]
    assert measure(Machine(), "--commit", "d") == ARMS  # negative control: another commit is other work
    assert measure(Machine(), "--commit", "d" + DIRTY) == ARMS
    assert measure(Machine(), "--commit", "d" + DIRTY) == ARMS  # changes have no name


def test_an_interruption_loses_the_arm_that_ran(measure: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure(Machine({ARMS[1]: KeyboardInterrupt()}))
    assert list(Kept(tmp_path, ROW).arms) == ARMS[:1]
    assert measure(Machine()) == ARMS[1:]
    assert list(Kept(tmp_path, ROW).arms) == ARMS
    assert not list(tmp_path.glob("*.part"))


def test_memory_that_ran_out_is_a_result_and_other_failures_are_not(measure: Any) -> None:
    measure(Machine({ARMS[1]: GONE, ARMS[2]: {"failed": "the host went away"}}))
    assert measure(Machine()) == [ARMS[2]]


def test_a_budget_begins_no_arm_that_does_not_fit(measure: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {arm: one.seconds for arm, one in ROWS[ROW].arms.items()}
    budget = min(seconds.values()) + 0.5
    assert measure(Machine(), "--budget", str(budget)) == [min(seconds, key=lambda arm: seconds[arm])]
    assert f"not run: {max(seconds.values())} s expected" in capsys.readouterr().out


def test_an_arm_of_another_commit_does_not_stay_beside_newer_ones(measure: Any, tmp_path: Path) -> None:
    measure(Machine())
    measure(Machine(), "--commit", "d", "--only", "dynotune")
    assert list(Kept(tmp_path, ROW).arms) == ["dynotune"]


def test_a_key_changes_with_all_that_figures_depend_on() -> None:
    here = provenance(ROW, "c", stand_in=False)
    key = key_of(here, settings_of(ROW, "dynotune"))
    assert key == key_of(dict(reversed(here.items())) | {"command": "other words"}, settings_of(ROW, "dynotune"))
    others = [
        key_of(here | {part: "another"}, settings_of(ROW, "dynotune"))
        for part in ("commit", "hardware", "host", "versions", "flash_attn")
    ]
    others += [
        key_of(here, settings_of(ROW, "trl default")),
        key_of(here, settings_of("packed-16k", "dynotune")),
        key_of(here, settings_of(ROW, "dynotune", dry=True)),
        key_of(here, settings_of(ROW, "dynotune") | {"window": ROWS[ROW].window + 1}),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_what_a_machine_lacks_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = ROWS[ROW].arms["trl tuned: fa2 + Liger"].settings
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    assert peers.missing("trl tuned: fa2 + Liger", tuned, None, gpu=True) == "liger-kernel is not installed"
    assert "--flash-attn" in str(peers.missing("trl", {"attn": "flash_attention_2"}, None, gpu=True))
    assert peers.missing("trl", {"attn": "flash_attention_2"}, Path("standin"), gpu=True) is None
    assert peers.missing("trl default", {}, None, gpu=False) is None
    assert peers.missing("unsloth", {}, None, gpu=True) == "unsloth is not installed"
    assert "unsloth: not installed: its arms are skipped" in peers.listing()
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: object())
    assert peers.missing("unsloth", {}, None, gpu=True) is None
    assert peers.missing("unsloth", {}, None, gpu=False) == "unsloth needs a GPU"
    assert "not installed" not in peers.listing()


def test_an_arm_that_hangs_or_dies_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    args = type("Args", (), {"flash_attn": None, "dry": True, "shared": None, "out": tmp_path})()

    def hang(*_: Any, timeout: float, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("arm", timeout)

    monkeypatch.setattr(peers.subprocess, "run", hang)
    assert "did not finish" in peers.run_arm(ROW, "dynotune", args)["failed"]
    died = subprocess.CompletedProcess([], 1, stdout="", stderr=f"Killed in {tmp_path}/x")
    monkeypatch.setattr(peers.subprocess, "run", lambda *_, **__: died)
    assert peers.run_arm(ROW, "dynotune", args) == {"failed": "Killed in OUT/x"}  # no folder of the user


def test_a_folder_within_a_folder_keeps_its_own_word() -> None:
    assert without_folders(f"{Path.home()}/a", {"SHARED": Path.home() / "a"}) == "SHARED"


def test_pairs_and_documents_are_the_probes() -> None:
    from benchmarks.peers.work import rows_of

    documents = rows_of(ROWS["2-documents"], None, None)
    assert len(documents) == 4000
    lengths = [len(one["input_ids"]) for one in documents]
    older = json.loads((peers.ROOT / "benchmarks" / "results" / "h200_beside_trl.json").read_text())
    counts = older["works"]["2-documents"]["arms"]["dynotune:packed"]["tokens"]
    assert counts == [sum(lengths[i : i + 20]) for i in range(0, 100, 20)]  # what was measured then
    assert len(rows_of(ROWS["dpo-2"], None, None)) == 2 * ROWS["dpo-2"].steps


def _steps_fit(row: Row) -> bool:
    """An epoch of the probe has the documents that the steps take; packed, their tokens."""
    from benchmarks.peers.work import common, examples_per_step, rows_of

    taken = row.steps * examples_per_step(common(row))
    if not row.content.get("packing", False):
        return taken <= row.epoch
    return taken * row.content["max_length"] <= sum(len(one["input_ids"]) for one in rows_of(row, None, None))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.documents == "probe"])
def test_no_row_takes_a_document_twice(name: str) -> None:
    assert _steps_fit(ROWS[name])


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="a rehearsal goes without a GPU")
@pytest.mark.parametrize("row", ["packed-16k", "dpo-8"])
def test_a_rehearsal_runs_through_both_trainers(row: str, tmp_path: Path) -> None:
    """Two steps of a tiny model in processes of their own, with TRL as installed: the same documents, the same losses."""
    assert peers.main(["--row", row, "--dry", "--commit", "c", "--out", str(tmp_path)]) == 0
    arms = Kept(tmp_path, row).arms
    ours, theirs = arms["dynotune"]["result"], arms["trl default"]["result"]
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
    assert ours.get("tokens") == theirs.get("tokens")
