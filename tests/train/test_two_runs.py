"""Promise: one run a folder, whatever the folder is called, whatever its file system knows of locks, whoever died in it."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from dynotune.errors import ConfigError
from dynotune.train.folder.run_folder import RunFolder


def opened(path: Path) -> RunFolder:
    return RunFolder.open(str(path), False, None)


def no_flock(monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = OSError) -> None:
    def acquire(self: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available") if error is OSError else error

    monkeypatch.setattr(FileLock, "acquire", acquire)


def test_the_same_folder_under_another_name(tmp_path: Path) -> None:
    first = opened(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name in ("run", "link", "./link/../run"):
        with pytest.raises(ConfigError, match="Another process is writing a run"):
            opened(tmp_path / name)
    first.release()
    opened(tmp_path / "link").release()


@pytest.mark.parametrize("error", [OSError, NotImplementedError])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    no_flock(monkeypatch, error)
    first = opened(tmp_path / "run")
    with pytest.raises(ConfigError, match="Another process is writing a run"):
        opened(tmp_path / "run")
    first.release()
    opened(tmp_path / "run").release()


@pytest.mark.parametrize("locks", [True, False])
def test_whoever_was_killed_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:
    code = (
        "import os, sys, errno; from filelock import FileLock; from dynotune.train.folder.run_folder import RunFolder\n"
        "def none(*a, **k): raise OSError(errno.ENOLCK, 'No locks available')\n"
        f"if not {locks}: FileLock.acquire = none\n"
        "held = RunFolder.open(sys.argv[1], False, None); print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    if not locks:
        no_flock(monkeypatch)
    with pytest.raises(ConfigError, match="Another process"):
        opened(tmp_path / "run")
    holder.kill()
    holder.communicate()
    opened(tmp_path / "run").release()


def test_a_lock_that_cannot_be_made_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(ConfigError, match="cannot be locked: No space left"):
        opened(tmp_path / "run")


def test_runs_that_begin_in_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So have those whose clock was set back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: form.replace("%Y%m%d-%H%M%S", "20260101-000000"))
    runs = [RunFolder.open(None, False, None) for _ in range(3)]
    assert [str(run.path) for run in runs] == [f"runs/sft-20260101-000000{more}" for more in ("", "-2", "-3")]
    for run in runs:
        run.release()


def test_files_from_the_future_are_read_again(run_tiny: Any, tmp_path: Path) -> None:
    """A clock that was set back by a year: what changed since is not mistaken for what is known."""
    from dynotune import SFTConfig, train_sft
    from tests.tiny import chats, tiny_model, tiny_tokenizer

    file = tmp_path / "rows.jsonl"

    def trained(n: int) -> int:
        import json

        file.write_text("".join(json.dumps(row) + "\n" for row in chats(12)[:n]))
        later = time.time() + 365 * 86_400
        os.utime(file, (later, later))
        config = SFTConfig(
            dataset_name=str(file), output_dir=str(tmp_path / f"run-{n}"), max_steps=1, use_cpu=True, save_strategy="no"
        )
        train_sft(config, model=tiny_model(), tokenizer=tiny_tokenizer())
        return int(json.loads((tmp_path / f"run-{n}" / "ledger.json").read_text())["rows_read"])

    assert [trained(12), trained(11)] == [12, 11]
