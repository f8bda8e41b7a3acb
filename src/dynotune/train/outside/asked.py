"""What signals and the limit of time ask of a run, as the loop wants to hear it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from dynotune.config.keys.run import RunConfig
from dynotune.errors import TrainingError
from dynotune.train.orders import Orders
from dynotune.train.outside.limit import TimeLimit
from dynotune.train.outside.signals import Part, Signals, StoppedError


def limit_of(config: RunConfig, signals: Signals | None, model: torch.nn.Module) -> TimeLimit | None:
    """The limit of `max_time`, which counts from the start of the command, or of the call where Python makes it."""
    if config.max_seconds is None:
        return None
    saved = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    states = sum(2 * 4 * p.numel() for p in model.parameters() if p.requires_grad)
    return TimeLimit(config.max_seconds, signals.began if signals else time.monotonic(), 2 * saved + states)


class Asked:
    """Orders of one run. `signals` is None in a thread that hears none, `limit` where there is none."""

    def __init__(self, signals: Signals | None, limit: TimeLimit | None, say: Callable[[str], None]) -> None:
        self.signals, self.limit, self.say = signals, limit, say
        self.leaving = ""
        """Why the run is left; empty while it is not."""

    def begin(self) -> None:
        if self.limit:
            if self.limit.is_over():
                raise TrainingError(
                    f"`max_time`: its {self.limit.seconds:g} s were over before the first step, and would be again."
                    " Give more time, or prepare the data before (`dynotune prepare`)."
                )
            self.limit.begin()
        if self.signals:
            for one in self.signals.theirs:
                self.say(f"note: {one.name} has a handler of yours: it is called as soon as a checkpoint is saved")
            self.signals.part = Part.STEPS

    def look(self, after_a_step: bool = True) -> Orders:
        if self.limit:
            if after_a_step:
                self.limit.step()
            if not self.leaving and self.limit.leaves_no_step():
                self.leaving = "`max_time`"
                self.say(f"`max_time`: {self._left()}; a checkpoint is saved, then the run is left")
        save = False
        if self.signals:
            self._tell()
            save = self.signals.save
            if not save and self.signals.leave is None:
                self.signals.pay()
            if self.signals.leave is not None:
                self.leaving = self.leaving or self.signals.leave.name
        return Orders(save=save, leave=bool(self.leaving))

    def cannot_wait(self) -> bool:
        if self.signals and self.signals.leave is not None:
            self.leaving = self.leaving or self.signals.leave.name
        elif self.limit is not None and self.limit.leaves_no_wait():
            self.leaving = self.leaving or "`max_time`"
        return bool(self.leaving)

    def saved(self, seconds: float) -> None:
        if self.signals:
            self.signals.save = False
        if self.limit:
            self.limit.saved(seconds)

    def wrote(self, seconds: float) -> None:
        if self.limit:
            self.limit.wrote(seconds)

    def evaluated(self, seconds: float) -> None:
        if self.limit:
            self.limit.evaluated(seconds)

    def end(self) -> None:
        if self.signals:
            self._tell()
            self.signals.part = Part.AROUND
            if self.signals.leave is None:
                self.signals.pay()

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self.signals is None:
            yield
            return
        self.signals.part = Part.WRITING
        try:
            yield
        finally:
            self.signals.part = Part.AROUND
        self._tell()
        self.signals.pay()
        if self.signals.leave is not None:
            raise StoppedError(self.signals.leave)

    def why(self) -> str:
        return self.leaving

    def _tell(self) -> None:
        """Say what handlers noted, outside of them."""
        if self.signals:
            notes, self.signals.notes = self.signals.notes, []
            for note in notes:
                self.say(note)

    def _left(self) -> str:
        assert self.limit is not None
        left = max(0.0, self.limit.ends - self.limit.now())
        source = "measured" if self.limit.measured else "reckoned"
        return f"{left:.0f} s are left, and a save takes {self.limit.save_seconds:.1f} s ({source})"
