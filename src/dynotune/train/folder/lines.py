"""Files to which lines are added while a run goes on. No line is torn, and none ends a run: what finds no room waits."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Lines:
    """The .jsonl files of one folder. Lines that cannot be written are kept, in order, and written once there is room."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.folder, self.say = folder, say
        self._paths: dict[str, str] = {}
        self.waiting: dict[str, list[bytes]] = {}
        """By file: complete lines, oldest first."""

        self._trouble: str | None = None

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Add one line to a file, behind those that wait for it. A failure is said once until it is over."""
        self.waiting.setdefault(name, []).append((_ENCODER.encode(row) + "\n").encode())
        self._write(name)

    def settle(self) -> bool:
        """Write what waits, and bring every line through to the disk. False where something still waits."""
        for name in list(self.waiting):
            self._write(name, flush=True)
        return not self.left

    @property
    def left(self) -> int:
        """How many lines wait."""
        return sum(len(lines) for lines in self.waiting.values())

    def _write(self, name: str, flush: bool = False) -> None:
        lines = self.waiting[name]
        if not lines and not flush:
            return
        path = self._paths.get(name) or self._paths.setdefault(name, str(self.folder / name))
        try:
            try:
                add_whole(path, b"".join(lines), flush)
            except FileNotFoundError:
                self.folder.mkdir(parents=True)
                self.say(f"note: {self.folder} was gone and is made again; what it held is lost, the run goes on")
                add_whole(path, b"".join(lines), flush)
        except OSError as error:
            if self._trouble is None:
                self.say(
                    f"warning: {self.folder / name} cannot be written ({error.strerror}). Training goes on; its lines are"
                    " kept in memory and written when there is room"
                )
            self._trouble = name
            return
        lines.clear()
        if self._trouble == name:
            self._trouble = None
            self.say(f"{self.folder / name} is written again; no line is missing")


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def add_whole(path: Path | str, data: bytes, flush: bool) -> None:
    """Add `data` to a file, all of it or nothing. Raises `OSError`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(handle, left) :]
            if flush:
                os.fsync(handle)
        except OSError:
            written = len(data) - len(left)
            os.ftruncate(handle, os.fstat(handle).st_size - written)  # makes the file shorter: that takes no room
            raise
    finally:
        os.close(handle)
