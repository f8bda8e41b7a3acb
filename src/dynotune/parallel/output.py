"""Where a rank's words go: the first rank's to the terminal, those of others into `logs/rank-N.log` in the run folder."""

import faulthandler
import os
import sys
from pathlib import Path
from typing import TextIO


class Output:
    """The standard streams of one rank. File descriptors are moved, so that libraries' own messages go along."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.folder: Path | None = None
        self._log: TextIO | None = None
        self._terminal: tuple[int, int] | None = None
        """Copies of the first standard output and error, once they were moved."""

    def keep_in(self, folder: Path) -> None:
        """From here on this rank's log lies in `folder`; whatever a rank but the first prints goes there."""
        self.folder = folder
        if self.rank:
            self._move()

    def path(self, rank: int) -> str:
        """Where a rank's log is, for people."""
        return f"(its output above: {rank})" if self.folder is None else str(self.folder / f"rank-{rank}.log")

    def log(self) -> TextIO:
        """This rank's log; the standard error while there is no folder for it."""
        if self.folder is None:
            return sys.stderr
        if self._log is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._log = (self.folder / f"rank-{self.rank}.log").open("a", encoding="utf-8", buffering=1)
        return self._log

    def speak(self) -> None:
        """What is printed from here on goes to the terminal, whatever the rank."""
        if self._terminal is not None:
            _flush()
            for copy, stream in zip(self._terminal, (1, 2), strict=True):
                os.dup2(copy, stream)
            self._terminal = None

    def be_quiet(self) -> None:
        """What is printed from here on goes into the log, if there is one, and nowhere else: another rank speaks."""
        self._move()

    def tell(self, text: str) -> None:
        """Say this on the terminal, whatever the rank."""
        _flush()
        error = 2 if self._terminal is None else self._terminal[1]
        os.write(error, f"{text}\n".encode(errors="replace"))

    def _move(self) -> None:
        if self._terminal is not None:
            return
        log = self.log() if self.folder else Path(os.devnull).open("a")  # noqa: SIM115  (as long as the process)
        _flush()
        self._terminal = os.dup(1), os.dup(2)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        faulthandler.enable(file=log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
