"""A name that cannot be read says what stands there; nothing is passed over, and no name harms a terminal or a file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dynotune.data.account.ledger import Ledger
from dynotune.data.rows import BadRow, Place, Record
from dynotune.data.sources.columns import parsed
from dynotune.data.sources.locate import Location, open_object, open_splits
from dynotune.errors import DataError

ROW = json.dumps({"text": "a"}) + "\n"
ESCAPES = "a\x1b]0;pwn\x07\x1b[31m\u202e"


def refusal(path: Path | str, **keys: Any) -> str:
    with pytest.raises(DataError) as raised:
        open_splits(Location(str(path), **keys))
    message = str(raised.value)
    assert message.isprintable(), message
    assert "Did you mean" not in message
    return message


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.jsonl").write_text(ROW)
    monkeypatch.chdir(tmp_path)
    assert "is empty" in refusal(name)
    assert "empty" in refusal("json", data_files=name)
    assert list(open_splits(Location("."))) == ["train"]


def test_a_pipe_a_device_and_links_are_named_for_what_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    (tmp_path / "dead.jsonl").symlink_to(tmp_path / "gone.jsonl")
    assert "a named pipe" in refusal(tmp_path / "a.jsonl")
    assert "a device" in refusal("/dev/null")
    assert "leads back to itself" in refusal(tmp_path / "loop.jsonl")
    assert "gone.jsonl, which does not exist" in refusal(tmp_path / "dead.jsonl")


@pytest.mark.parametrize("asked", [".", "*.jsonl", "**/*.jsonl"])
def test_a_folder_or_glob_does_not_pass_over_a_file_that_is_none(tmp_path: Path, asked: str) -> None:
    (tmp_path / "good.jsonl").write_text(ROW)
    (tmp_path / "dead.jsonl").symlink_to(tmp_path / "gone.jsonl")
    assert "which does not exist" in refusal(f"{tmp_path}/{asked}")


@pytest.mark.parametrize("name", ["x" * 300 + ".jsonl", "a\0b.jsonl"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert "name" in refusal(tmp_path / name)


def forbid(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Tests may run as root, whom no mode keeps out."""
    scandir, stat, listdir = os.scandir, Path.stat, os.listdir

    def denied(path: Any) -> PermissionError:
        return PermissionError(13, "Permission denied", str(path))

    def forbidding_scandir(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise denied(path)
        return scandir(path)

    def forbidding_listdir(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise denied(path)
        return listdir(path)

    def forbidding_stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if folder in path.parents:
            raise denied(path)
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "scandir", forbidding_scandir)
    monkeypatch.setattr(os, "listdir", forbidding_listdir)
    monkeypatch.setattr(Path, "stat", forbidding_stat)


@pytest.mark.parametrize("asked", ["", "sub", "sub/b.jsonl", "sub/*.jsonl", "**/*.jsonl"])
def test_a_forbidden_folder_is_an_error_and_not_skipped(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.jsonl", "sub/b.jsonl"):
        (tmp_path / name).write_text(ROW)
    whole = f"{tmp_path}/{asked}"
    assert open_splits(Location(whole))  # negative control: it is found where it may be read
    forbid(monkeypatch, tmp_path / "sub")
    assert "permission" in refusal(whole)


def test_file_names_are_printable_and_utf_8_wherever_they_are_said(tmp_path: Path) -> None:
    folder = tmp_path / ESCAPES
    folder.mkdir()
    (folder / f"{ESCAPES}.jsonl").write_text(ROW + "broken\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff\xfe.jsonl")).write_text(ROW)
    source = open_splits(Location(str(folder)))["train"]
    assert source.statement.isprintable()
    assert source.name.isprintable()
    ledger = Ledger()
    rows = [parsed(row) for row in source]
    assert sum(isinstance(row, Record) for row in rows) == 2  # the files are still found by their true names
    for row in rows:
        assert str(row.place).isprintable()
        str(row.place).encode()
        ledger.read(row.place)
        ledger.refuse(row if isinstance(row, BadRow) else BadRow(row.place, "made", "made"))
    ledger.write(tmp_path / "ledger.json")
    assert r"b\udcff\udcfe.jsonl" in (tmp_path / "ledger.json").read_text().replace("\\\\", "\\")


def test_names_in_error_messages_are_printable(tmp_path: Path) -> None:
    (tmp_path / f"{ESCAPES}1.jsonl").write_text(ROW)
    with pytest.raises(DataError, match="Did you mean") as raised:
        open_splits(Location(str(tmp_path / f"{ESCAPES}2.jsonl")))
    assert str(raised.value).isprintable()


def test_an_ordinary_name_is_said_as_it_is() -> None:
    assert str(Place("Straße/日本 1.jsonl", 7)) == "Straße/日本 1.jsonl:7"
    assert open_object([{"text": "a"}], "train_dataset").statement == "train_dataset: list of 1 rows"
