"""The speed-ups of one run where they stand: put in, one in each slot, and taken out again."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch

from dynotune.foreign import FOREIGN, in_a_line, may_pass
from dynotune.speedups.choose import Decision, candidates, conflict, drop_what_gains_nothing, giving_way, settle
from dynotune.speedups.contract import Installation, No, Order, Speedup
from dynotune.speedups.expectation import Expectation
from dynotune.speedups.remembered import tried_again
from dynotune.speedups.site import Site


class Installed:
    """Puts candidates in when it is made. `close` gives the model back."""

    def __init__(
        self,
        decisions: Sequence[Decision],
        site: Site,
        agree: Callable[[No | None], No | None] = lambda no: no,
        remember: Callable[[Speedup, str], None] = lambda speedup, reason: None,
        timed: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext(),
    ) -> None:
        """agree: called for each one that is tried, with why it cannot be here; gives why it cannot be on any rank.
        remember: has this machine leave out one that is `auto` and failed, for a reason that is the end of a sentence.
        timed: makes a context in which one of this name is put in, and what it takes is counted.

        Raises `ConfigError` where something that is `on` cannot be put in.
        """
        self.decisions, self.site, self.agree, self.remember = list(decisions), site, agree, remember
        self.timed = timed
        self._standing: list[Decision] = []
        try:
            self._put_in(Order.KERNELS)
            self._drop_what_gains_nothing()  # not later: a layout cannot be taken out of a run that goes on
            self._put_in()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Decision]:
        """Those that stand, in the order in which they were put in."""
        return iter(list(self._standing))

    def get(self, name: str) -> Decision | None:
        """The one of this name, if it stands."""
        return next((one for one in self if one.name == name), None)

    def lines(self) -> list[str]:
        """What is to be said of them at the start: of those that stand, and why not where that may surprise."""
        said = [line for one in self if one.installed is not None for line in one.installed.lines]
        surprising = [(one.name, one.no) for one in self.decisions if one.no and not one.no.expected]
        return said + [_why_left_out(name, no) for name, no in surprising]

    def notes(self) -> list[str]:
        """What those that stand have to say when the run is over."""
        return [line for one in self if one.installed is not None for line in one.installed.notes()]

    def expectations(self, one: Decision) -> Sequence[Expectation]:
        """What a traced step must show of one that stands."""
        assert one.installed is not None
        return one.speedup.expect(self.site.context, one.installed)

    def remove(self, one: Decision, no: No) -> list[Decision]:
        """Take one out for good, and what needs it; who stood back behind it is put in. Returns all that changed."""
        before = {other.name for other in self}
        self._take_out(one)
        one.refuse(no)
        self._settle()
        self._put_in()
        after = {other.name for other in self}
        return [other for other in self.decisions if (other.name in before) != (other.name in after)]

    def put_in(self, one: Decision) -> bool:
        """Try one that was left out until something was measured, whatever its reason was; whether it stands now."""
        assert one.installed is None
        one.no = None
        self._try(one)
        return one.installed is not None

    def giving_way(self, policy: Speedup) -> list[Decision]:
        """Those that stand and are taken out for a policy of activation memory, which they cannot be beside."""
        return giving_way(self, policy)

    @contextmanager
    def without(self, one: Decision) -> Iterator[None]:
        """Inside, it is out of the way. The state on exit is that on entry."""
        assert one.installed is not None
        out = one.installed.without() if one.installed.without else own_forwards(one.installed)
        with self.site.one_by_one(), out:
            self.site.beneath = self._beneath(without=one)
            try:
                yield
            finally:
                self.site.beneath = self._beneath()

    @contextmanager
    def instead(self, one: Decision) -> Iterator[None]:
        """Inside, it is out of the way, and who stood back behind it is there. The state on exit is that on entry."""
        put: list[Decision] = []
        with self.without(one), ExitStack() as back:
            behind = [other for other in self.decisions if other.behind is one]
            for other in sorted(behind, key=lambda other: (other.speedup.order, other.speedup.rank(self.site.context))):
                if any(conflict(other.speedup, there.speedup) for there in put):
                    continue
                found = self._made(other)
                if isinstance(found, Installation):
                    put.append(other)
                    back.callback(found.uninstall)
            yield

    def close(self) -> None:
        """Everything out, the last first."""
        for one in reversed(list(self)):
            self._take_out(one)

    def _put_in(self, last: Order = Order.STEP) -> None:
        """Try what is to be tried up to `last`, in the order of installation, until everything stands or is refused."""
        while left := [one for one in candidates(self.decisions) if one.speedup.order <= last]:
            self._try(left[0])

    def _drop_what_gains_nothing(self) -> None:
        """Beside the kernels that could be put in: what was found by trying is known on every rank alike. Those that could
        not be beside what goes are tried once more."""
        gone = {one.name for one in drop_what_gains_nothing(self.decisions, self.site.context)}
        if not gone:
            return
        for one in reversed(list(self)):
            if one.no is not None:
                self._take_out(one)
        for one in self.decisions:
            if one.no is not None and one.no.beside in gone:
                one.no = None
        self._settle()
        self._put_in(Order.KERNELS)

    def _made(self, one: Decision) -> Installation | No:
        """What its installation gives; an error of its packages or kernels is a reason."""
        try:
            with self.timed(one.name):
                return one.speedup.install(self.site)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except FOREIGN as error:
            reason = f"it failed to install ({in_a_line(error)})"
            if one.setting != "auto" or may_pass(error):
                return No(reason)
            self.remember(one.speedup, reason)
            return No(f"{reason}, and is left out of later runs of its kind on this machine", tried_again(one.name))

    def _try(self, one: Decision) -> None:
        found = self._made(one)
        no = self.agree(found if isinstance(found, No) else None)
        if no is None:
            assert isinstance(found, Installation)
            one.installed = found
            self._standing.append(one)
            self._changed()
            return
        if isinstance(found, Installation):
            found.uninstall()
        one.refuse(no)
        self._settle()

    def _settle(self) -> None:
        """After one was refused: what stands and needs it goes, and who stood back behind it is to be tried."""
        settle(self.decisions, self.site.context)
        for one in reversed(list(self)):
            if one.no is not None:
                self._take_out(one)

    def _take_out(self, one: Decision) -> None:
        if one.installed is not None:
            one.installed.uninstall()
            one.installed = None
            self._standing.remove(one)
            self._changed()

    def _changed(self) -> None:
        self.site.changes += 1
        self.site.beneath = self._beneath()

    def _beneath(self, without: Decision | None = None) -> tuple[Hashable, ...]:
        standing = [(one.name, one.installed) for one in self._standing if one is not without]
        return tuple((name, there.places, there.left_out) for name, there in standing if there is not None)


def _why_left_out(name: str, no: No) -> str:
    return f"note: {name} does not run: {no.reason}" + (f". To have it, {no.remedy}" if no.remedy else "")


@contextmanager
def own_forwards(installed: Installation) -> Iterator[None]:
    """Inside, its modules have their own forward, where theirs is still the one that it put there."""
    with ExitStack() as back:
        for module, forward in installed.forwards:
            if module.__dict__.get("forward") is forward:
                del module.forward
                back.callback(setattr, module, "forward", forward)
        yield
