"""The speed-ups of one run where they stand: put in, one in each slot, and taken out again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from dynotune.speedups.choose import Decision, candidates, conflict
from dynotune.speedups.contract import Installation, No, Site
from dynotune.speedups.expectation import Expectation

FOREIGN: tuple[type[Exception], ...] = (
    ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError
)  # fmt: skip
"""What a speed-up's packages and kernels raise where they do not fit this machine or model."""


class Installed:
    """Puts candidates in when it is made. `close` gives the model back."""

    def __init__(
        self, decisions: Sequence[Decision], site: Site, agree: Callable[[No | None], No | None] = lambda no: no
    ) -> None:
        """agree: called for each one that is tried, with why it cannot be here; gives why it cannot be on any rank.

        Raises `ConfigError` where something that is `on` cannot be put in.
        """
        self.decisions, self.site, self.agree = list(decisions), site, agree
        try:
            for one in candidates(self.decisions, site.context):
                self._try(one)
                self._drop_what_lacks()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Decision]:
        """Those that stand, in the order in which they were put in."""
        return iter([one for one in self.decisions if one.installed is not None])

    def get(self, name: str) -> Decision | None:
        """The one of this name, if it stands."""
        return next((one for one in self if one.name == name), None)

    def lines(self) -> list[str]:
        """What is to be said of them at the start: of those that stand, and why not where that may surprise."""
        said = [line for one in self if one.installed is not None for line in one.installed.lines]
        surprising = [(one.name, one.no.reason) for one in self.decisions if one.no and not one.no.expected]
        return said + [f"note: {name} does not run: {reason}" for name, reason in surprising]

    def notes(self) -> list[str]:
        """What those that stand have to say when the run is over."""
        return [line for one in self if one.installed is not None for line in one.installed.notes()]

    def expectations(self, one: Decision) -> Sequence[Expectation]:
        """What a traced step must show of one that stands."""
        assert one.installed is not None
        return one.speedup.expect(self.site.context, one.installed)

    def remove(self, one: Decision, no: No) -> list[Decision]:
        """Take one out for good, and what needs it; the next of its slot is put in. Returns all that changed."""
        before = {other.name for other in self}
        for other in self.decisions:
            if other.no == _in_place_of(one):
                other.no = None
        self._take_out(one, no)
        self._drop_what_lacks()
        for other in candidates([d for d in self.decisions if d.installed is None], self.site.context):
            self._try(other)
        after = {other.name for other in self}
        return [other for other in self.decisions if (other.name in before) != (other.name in after)]

    @contextmanager
    def without(self, one: Decision) -> Iterator[None]:
        """Inside, it is out of the way. The state on exit is that on entry."""
        assert one.installed is not None
        with one.installed.without() if one.installed.without else own_forwards(one.installed):
            yield

    def close(self) -> None:
        """Everything out, the last first."""
        for one in reversed(list(self)):
            assert one.installed is not None
            one.installed.uninstall()
            one.installed = None

    def _try(self, one: Decision) -> None:
        if one.no is not None:  # what it needs was refused meanwhile
            return
        rival = next((other for other in self if conflict(one.speedup, other.speedup)), None)
        if rival is not None:
            one.refuse(_in_place_of(rival))
            return
        found: Installation | No
        try:
            found = one.speedup.install(self.site)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except FOREIGN as error:
            first = (str(error).strip().splitlines() or [""])[0]
            found = No(f"it failed to install ({type(error).__name__}: {first})")
        no = self.agree(found if isinstance(found, No) else None)
        if no is None:
            assert isinstance(found, Installation)
            one.installed = found
            return
        if isinstance(found, Installation):
            found.uninstall()
        one.refuse(no)

    def _drop_what_lacks(self) -> None:
        """What stands and needs something that was refused goes; what is still to come is not tried."""
        gone = {one.name: one.no for one in self.decisions if one.no is not None}
        for one in reversed(self.decisions):
            lacking = next((name for name in one.speedup.requires if name in gone), None)
            if one.no is None and lacking is not None:
                why = gone[lacking]
                assert why is not None
                self._take_out(one, No(f"it needs {lacking}, which does not run: {why.reason}", expected=True))

    def _take_out(self, one: Decision, no: No) -> None:
        if one.installed is not None:
            one.installed.uninstall()
            one.installed = None
        one.refuse(no)


def _in_place_of(one: Decision) -> No:
    return No(f"{one.name} runs in its place", expected=True)


@contextmanager
def own_forwards(installed: Installation) -> Iterator[None]:
    """Inside, its modules have their own forward, where theirs is still the one that it put there."""
    with ExitStack() as back:
        for module, forward in installed.forwards:
            if module.__dict__.get("forward") is forward:
                del module.forward
                back.callback(setattr, module, "forward", forward)
        yield
