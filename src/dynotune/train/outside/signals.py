"""SIGINT and SIGTERM (save and leave), SIGUSR1 (save now): what they do in each part of a run.

While steps are taken, a signal only leaves a note, which the loop reads once a step: nothing is torn in the middle. A second
one to leave, or one before the first step or after the last, ends the run where it stands, as Ctrl-C always does in Python:
by an exception, so that locks are released and the terminal is put right. Loads nothing heavy: the command line listens
from its first moment.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import Any

TO_LEAVE = (signal.SIGINT, signal.SIGTERM)
TO_SAVE = getattr(signal, "SIGUSR1", None)
"""None where the system has no such signal."""

HEARD = (*TO_LEAVE, *((TO_SAVE,) if TO_SAVE is not None else ()))
PYTHONS_OWN = (signal.SIG_DFL, signal.default_int_handler)
"""What stands where nobody asked for anything."""


ECHO, ECHO_OF_LAUNCHERS = 1.0, 10.0
"""Seconds within which a second signal is an echo of the first: Ctrl-C and schedulers reach the whole process group, and
whoever started this process passes it on once more. Launchers of several ranks take longer for it."""


class StoppedError(KeyboardInterrupt):
    """A signal ended the run where it stood. The text says what is kept."""

    def __init__(self, number: int, kept: str = "nothing was saved") -> None:
        super().__init__(kept)
        self.number = number


class Part(Enum):
    """What a signal means depends on where the run is."""

    AROUND = "before the first step or after the last"
    STEPS = "steps are taken"
    WRITING = "the result is written"


class Signals:
    """What was heard. In the main thread only: Python allows handlers nowhere else."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        """When the process, or the run in it, began."""

        self.part = Part.AROUND
        self.leave: signal.Signals | None = None
        """The first signal that asked to leave."""

        self.first_at = 0.0
        self.save = False
        self.notes: list[str] = []
        """What is to be said; a handler must not print, since it may interrupt a print."""

        self.theirs: dict[signal.Signals, Callable[[int, FrameType | None], Any]] = {}
        """Handlers of the user's own."""

        self.owed: list[signal.Signals] = []
        """Signals whose own handlers are to be called as soon as the state is safe."""

        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Take the place of the handlers that are there. One that C code installed cannot be put back: it stays."""
        for one in HEARD:
            handler = signal.getsignal(one)
            if handler is None:
                self.notes.append(f"note: {one.name} has a handler outside Python, which is kept: it does not save")
            elif handler is not signal.SIG_IGN:  # whoever started us wants it ignored, as shells do in the background
                self._before[one] = handler
                if callable(handler) and handler not in PYTHONS_OWN:
                    self.theirs[one] = handler
                signal.signal(one, self._hear)

    def stop_listening(self) -> None:
        """Put the handlers back; one that was put in meanwhile by somebody else stays."""
        for one, handler in self._before.items():
            if signal.getsignal(one) == self._hear:
                signal.signal(one, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        one = signal.Signals(number)
        if one == TO_SAVE:
            self.save = True
            if self.part is Part.AROUND and one not in self.theirs:
                self.notes.append(f"{one.name}: noted; there is no step to save yet")
            self._call_theirs(one, frame)
            return
        now = time.monotonic()
        if self.leave is not None and now - self.first_at < (ECHO_OF_LAUNCHERS if _is_one_of_several() else ECHO):
            return
        if self.part is Part.AROUND or self.leave is not None:
            if self.part is Part.AROUND and one in self.theirs:
                self.theirs[one](number, frame)  # as if we were not there
                return
            self.leave, self.first_at = self.leave or one, now
            raise StoppedError(number)
        self.leave, self.first_at = one, now
        done = "the step being taken is finished and" if self.part is Part.STEPS else "the result being written is"
        what = f"{done} saved" if self.part is Part.STEPS else f"{done} finished"
        told = f"{one.name}: {what}, then the run is left. Once more leaves at once."
        self.notes.append(told)
        _tell_the_terminal(told)
        self._call_theirs(one, frame)

    def _call_theirs(self, one: signal.Signals, frame: FrameType | None) -> None:
        if one not in self.theirs:
            return
        if self.part is Part.AROUND:
            self.theirs[one](one, frame)
        elif one not in self.owed:
            self.owed.append(one)

    def pay(self) -> None:
        """Call the user's own handlers of what was heard: the state is safe now, whatever they do."""
        while self.owed:
            one = self.owed.pop(0)
            self.theirs[one](one, None)


_listening: Signals | None = None


@contextmanager
def listening() -> Iterator[Signals | None]:
    """Listen until the context is left. Inside another one, its signals: nothing that was heard before is lost.

    None in a thread other than the main one, where Python allows no handlers.
    """
    global _listening
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    if _listening is not None:
        yield _listening
        return
    _listening = signals = Signals()
    signals.listen()
    try:
        yield signals
    finally:
        _listening = None
        signals.part = Part.AROUND
        signals.stop_listening()
        signals.pay()


def heard() -> Signals | None:
    """The signals of the context around; None where none are heard."""
    return _listening if threading.current_thread() is threading.main_thread() else None


def number_of(stop: KeyboardInterrupt) -> int:
    """The signal that stopped a run; another's KeyboardInterrupt is Ctrl-C."""
    return stop.number if isinstance(stop, StoppedError) else int(signal.SIGINT)


def _is_one_of_several() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _tell_the_terminal(text: str) -> None:
    """Whoever pressed Ctrl-C sees at once that it was heard, however long the step takes."""
    with suppress(OSError, ValueError, AttributeError):
        number = sys.__stderr__.fileno()  # type: ignore[union-attr]
        if os.isatty(number):
            os.write(number, f"\r\n{text}\r\n".encode())
