"""Promise: a result that was kept is found again under its machine, work and definitions, whole, by any number of processes;
what cannot be kept or read is said."""

import json
import multiprocessing
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.errors import DataError
from dynotune.measure.words import DEFINITIONS
from dynotune.results import history as history_module
from dynotune.results.effects import effects_of
from dynotune.results.history import History, benches_folder, machine_of, name_of, write_result
from dynotune.results.result import LARGEST, Result
from tests.bench import made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def history(tmp_path: Path, said: list[str]) -> History:
    return History(tmp_path / "benches", said.append)


def test_what_was_kept_is_found_by_its_name_its_beginning_and_its_file(history: History) -> None:
    kept, path = history.keep(made.ab())
    assert path is not None
    assert path.stem == kept.name == "2026-11-22-093000-ab-sft-of-qwen2forcausallm-under-lora-e1d2af1"
    assert history.find(kept.name)[0] == history.find("2026-11-22")[0] == history.find(str(path))[0] == kept
    assert history.find("e1d2af1")[0] == kept
    again, _ = history.keep(made.ab())
    assert again.name == f"{kept.name}-2"
    assert history.find(kept.name)[0] == kept  # the whole name, though another begins with it
    with pytest.raises(DataError, match="may be any of 2 results"):
        history.find("2026-11-22")
    with pytest.raises(DataError, match=r"there is no result `2026-12`.*dynotune bench list"):
        history.find("2026-12")


def test_a_label_stands_in_the_name_and_finds_it(history: History) -> None:
    kept, path = history.keep(made.ab(label="Liger, 7B: again?"))
    assert path is not None
    assert path.stem == kept.name == "2026-11-22-093000-liger-7b-again-e1d2af1"
    other, _ = history.keep(made.ab(label="liger 13b"))
    assert history.find("Liger, 7B: again?")[0] == history.find("liger-7b-again")[0] == kept
    assert history.find("liger 13b")[0] == other
    with pytest.raises(DataError, match="may be any of 2 results"):
        history.find("liger")
    with pytest.raises(DataError, match="no result"):
        history.find("7")


def test_a_folder_that_is_no_benchs_hides_no_label(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: a bench's folder comes first, and a folder is named where nothing else has its name."""
    monkeypatch.chdir(tmp_path)
    for name in ("nightly", "empty"):
        (tmp_path / name).mkdir()
    kept, _ = history.keep(made.ab(label="nightly"))
    assert history.find("nightly")[0] == kept
    for name in ("empty", "./nightly", ".", ""):
        with pytest.raises(DataError, match=r"is a folder without a bench\.json of a bench, and no result"):
            history.find(name)
    other = made.ab(label="of the folder")
    write_result(other, tmp_path / "nightly" / "bench.json")
    assert history.find("nightly") == (other, Path("nightly/bench.json"))


def test_machines_work_and_definitions_are_apart(history: History) -> None:
    here = made.ab()
    for other in (
        {"machine": {**made.MACHINE, "torch": "2.13.0"}},
        {"work": "dpo of Qwen2ForCausalLM under LORA"},
        {"definitions": DEFINITIONS + 1},
    ):
        history.keep(made.ab(**other))
    assert list(history.newest(machine_of(here), here.work, DEFINITIONS, 10)) == []
    history.keep(here)
    assert len(list(history.newest(machine_of(here), here.work, DEFINITIONS, 10))) == 1
    assert len(history.paths()) == 4


def test_a_withdrawn_result_stays_with_its_correction(history: History) -> None:
    wrong, path = history.keep(made.ab())
    right, _ = history.keep(made.ab(date="2026-11-23T10:00:00+00:00"))
    copy = path.parent.parent / "copied.json"
    copy.write_bytes(path.read_bytes())
    marked, _ = history.withdraw(wrong.name, "its tokens counted padding", right.name)
    assert marked.withdrawn is not None
    assert marked.withdrawn.corrected_by == right.name
    assert history.find(wrong.name)[0] == marked
    assert marked.model_copy(update={"withdrawn": None}) == wrong
    assert history.find(str(copy))[0].withdrawn == marked.withdrawn  # a copy knows it too
    for why, by, message in (("", "", "say why"), ("x", "nothing", "no result"), ("x", wrong.name, "own correction")):
        with pytest.raises(DataError, match=message):
            history.withdraw(wrong.name, why, by)


@pytest.mark.parametrize("by", ["bench", "bench/bench.json"])
def test_what_is_withdrawn_by_its_folder_or_file_is_withdrawn_in_the_history(
    history: History, tmp_path: Path, by: str
) -> None:
    """Effects and lists are made of that one. Control: another machine's of the same name stays as it was."""
    kept, path = history.keep(made.attribute())
    other, elsewhere = history.keep(made.attribute(machine={**made.MACHINE, "torch": "2.13.0"}))
    assert path is not None
    assert elsewhere is not None
    assert other.name == kept.name
    write_result(kept, tmp_path / "bench" / "bench.json")
    effect = effects_of(machine_of(kept), kept.work, kept.model["parameters"], history)
    assert effect("fused_lora") is not None
    marked, where = history.withdraw(str(tmp_path / by), "its tokens counted padding")
    assert where == tmp_path / "bench" / "bench.json"
    assert marked.withdrawn is not None
    assert Result.read(where) == Result.read(path) == marked
    assert Result.read(elsewhere).withdrawn is None
    assert effects_of(machine_of(kept), kept.work, kept.model["parameters"], history)("fused_lora") is None


def test_a_withdrawal_that_stops_half_way_says_what_is_marked(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, path = history.keep(made.ab())
    assert path is not None
    copy = tmp_path / "copy.json"
    write_result(kept, copy)
    write = history_module._write

    def refused(where: Path, result: Result) -> None:
        if where == stuck:
            raise PermissionError(13, "Permission denied")
        write(where, result)

    monkeypatch.setattr(history_module, "_write", refused)
    stuck = path
    with pytest.raises(DataError, match=r"Permission denied\): nothing was withdrawn"):
        history.withdraw(str(copy), "x")
    assert Result.read(path).withdrawn is Result.read(copy).withdrawn is None
    stuck = copy
    with pytest.raises(DataError, match=r"copy\.json cannot be written .* it is withdrawn in the history .* alone"):
        history.withdraw(str(copy), "x")
    assert Result.read(path).withdrawn == history.find(str(copy))[0].withdrawn
    assert Result.read(path).withdrawn is not None


def test_damage_is_said_and_passed_over(history: History, said: list[str]) -> None:
    _, path = history.keep(made.ab())
    assert path is not None
    whole = path.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        b"\xff" * 100,
        b"[]",
        b'{"format": 1}',
        whole.replace(b'"seed"', b'"sead"'),
    ):
        path.write_bytes(damaged)
        said.clear()
        here = made.ab()
        assert list(history.newest(machine_of(here), here.work, here.definitions, 10)) == []
        assert len(said) == 1
        assert "passed over" in said[0]
        with pytest.raises(DataError, match="no result of `dynotune bench`"):
            history.find(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(DataError, match="which no result of a bench has"):
        Result.read(huge)
    with pytest.raises(DataError, match="cannot be read"):
        Result.read(tmp_path)


def test_a_file_from_before_there_was_a_mark_for_it_was_not_cut_off(tmp_path: Path) -> None:
    """Control: the mark is read where it stands."""
    whole = json.loads(made.ab().model_dump_json())
    assert whole.pop("cut_off") is False
    for name, body in {"before": whole, "cut": {**whole, "cut_off": True}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
        assert Result.read(tmp_path / f"{name}.json") == made.ab(cut_off=name == "cut")


def test_a_folder_that_cannot_be_written_is_said_and_not_fatal(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "benches").write_text("in the way")
    result, path = History(tmp_path / "benches", said.append).keep(made.ab())
    assert path is None
    assert result == made.ab()
    assert "this bench is not in the history" in said[0]


def _keep(folder: str) -> None:
    for _ in range(5):
        History(Path(folder), lambda text: None).keep(made.ab())


def test_many_processes_keep_at_the_same_time(history: History) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_keep, [str(history.folder)] * 4)
    assert len(history.paths()) == 20
    assert {path.stem for path in history.paths()} == {Result.read(path).name for path in history.paths()}
    assert not list(history.folder.rglob(".*.json.*"))


def test_it_lies_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path))
    assert benches_folder() == tmp_path / "benches"


@given(st.text(max_size=80), st.text(max_size=80), st.none() | st.text(max_size=80))
def test_any_name_is_a_name_of_a_file(date: str, words: str, commit: str | None) -> None:
    assert re.fullmatch(r"[a-z0-9-]{1,140}", name_of(date[:30], words, commit))


def test_nothing_that_is_kept_is_lost_on_the_way(history: History) -> None:
    for make in made.EVERY.values():
        kept, path = history.keep(make())
        assert path is not None
        assert Result.read(path) == kept
        assert json.loads(path.read_bytes())["name"] == path.stem
