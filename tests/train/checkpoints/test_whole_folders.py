"""Promise: a crash at any moment of replacing a folder leaves the old one or the new one, never neither and never half."""

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
