"""Promise: a crash at any moment of replacing a folder leaves the old one or the new one, never neither and never half."""

import os
from pathlib import Path

import pytest

from dynotune.train.checkpoints import whole_folders


def made(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("crash_at", range(4))
def test_replacing_survives_a_crash_before_every_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    target, new = made(tmp_path / "step-1", "old"), made(tmp_path / ".step-1.half", "new")
    renames = 0
    real = Path.rename

    def rename(self: Path, to: Path) -> Path:
        nonlocal renames
        if renames == crash_at:
            raise CrashError
        renames += 1
        return real(self, to)

    monkeypatch.setattr(Path, "rename", rename)
    try:
        whole_folders.put_in_place(new, target)
    except CrashError:
        assert crash_at < 2
    else:
        assert crash_at >= 2
    monkeypatch.setattr(Path, "rename", real)
    whole_folders.recover(tmp_path)
    assert (target / "file").read_text() == ("new" if crash_at >= 2 else "old")
    assert [p.name for p in tmp_path.iterdir()] == ["step-1"]


def test_removing_takes_the_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "step-1", "x")

    def fail(*_: object, **__: object) -> None:
        if not folder.exists():
            raise CrashError

    monkeypatch.setattr(whole_folders.shutil, "rmtree", fail)
    with pytest.raises(CrashError):
        whole_folders.remove(folder)
    assert not folder.exists()
    monkeypatch.undo()
    whole_folders.recover(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lost", [None, "file", "inner"])
def test_contents_reach_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str | None
) -> None:
    """`lost`: the negative control, a file or folder that is left out."""
    around = tmp_path / "checkpoints"
    around.mkdir()
    new = made(around / ".step-1.half", "new")
    (new / "model").mkdir()
    (new / "model" / "inner").write_text("weights")
    paths = {p.stat().st_ino: p.name for p in [new, *new.rglob("*"), around, tmp_path]}
    done: list[str] = []
    fsync, rename, flush_entry = os.fsync, Path.rename, whole_folders._flush_entry

    def record(handle: int) -> None:
        done.append(paths[os.fstat(handle).st_ino])
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(Path, "rename", lambda self, to: (done.append("renamed"), rename(self, to))[1])
    monkeypatch.setattr(whole_folders, "_flush_entry", lambda path: None if path.name == lost else flush_entry(path))
    whole_folders.put_in_place(new, around / "step-1")
    name_changed = done.index("renamed")
    assert (set(done[:name_changed]) == {".step-1.half", "file", "model", "inner"}) == (lost is None)
    assert done[name_changed + 1 :] == ["checkpoints", tmp_path.name]
