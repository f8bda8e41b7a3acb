"""Which speed-ups a run takes: what was asked, what can be, what cannot be beside each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError
from dynotune.speedups.contract import Context, Installation, No, Setting, Speedup

Refusal = Callable[[Speedup, Context], No | None]
"""Why one is not to be tried although it is applicable, such as that its proof failed here before."""


@dataclass(slots=True, eq=False)
class Decision:
    """What becomes of one speed-up."""

    speedup: Speedup
    setting: Setting
    asked_by: str
    """The key that asked, as written; empty where nobody did."""

    no: No | None = None
    """Why it does not run; None where it does or is to be tried."""

    behind: "Decision | None" = None
    """The one that runs in its place. It is tried where that cannot be."""

    installed: Installation | None = None

    @property
    def name(self) -> str:
        return self.speedup.name

    @property
    def by_name(self) -> bool:
        """Whether `speedups:` asked."""
        return self.asked_by.startswith("speedups:")

    def refuse(self, no: No) -> None:
        """Leave it out. Raises `ConfigError` where it was asked for by name, and where a key asks for it that can be had."""
        if self.setting == "on" and not (no.no_place and not self.by_name):
            remedy = f" To have it, {no.remedy}." if no.remedy else ""
            auto = "auto" if self.asked_by.endswith(": on") else f"speedups: {{{self.name}: auto}}"
            key = self.asked_by.partition(":")[0]
            out = "" if self.by_name or auto == "auto" else f"Take `{key}` out, or write"
            raise ConfigError(
                f"`{self.asked_by}`: {self.name} cannot run: {no.reason}.{remedy} {out or 'Write'} `{auto}` to go on"
                " without it, which is then said."
            )
        self.no, self.behind = no, None

    def stand_back(self, winner: "Decision") -> None:
        """Leave it out as long as `winner` is in its place."""
        asked = "was asked for" if winner.setting == "on" else "runs"
        self.no, self.behind = No(f"{winner.name} {asked} in its place", expected=True), winner


def decide(
    config: WholeConfig,
    context: Context,
    registry: Mapping[str, Speedup],
    refusal: Refusal = lambda speedup, context: None,
) -> list[Decision]:
    """A decision for every speed-up, in the order of installation. Those without a `no` are to be tried.

    refusal: consulted for `auto` only. Raises `ConfigError` where something is `on` and cannot be.
    """
    decisions = [_asked(config, speedup) for speedup in registry.values()]
    for one in decisions:
        if one.setting == "off":
            one.no = No("it is off", expected=True)
            continue
        no = one.speedup.applicable(context)
        if no is None and one.setting == "auto":
            no = refusal(one.speedup, context)
        if no is not None:
            one.refuse(no)
    settle(decisions, context)
    drop_what_gains_nothing(decisions, context)
    return decisions


def drop_what_gains_nothing(decisions: Sequence[Decision], context: Context) -> list[Decision]:
    """Refuse what is `auto` and not worth it beside the others that are taken; returns all of which that is true.

    Of one that was refused nobody else is asked again: what needs it goes with it, as `settle` has it.
    """
    slots = {one.speedup.slot for one in decisions if one.no is None and one.speedup.slot is not None}
    taken = [one for one in decisions if one.no is None and one.setting == "auto"]
    found = [(one, no) for one in taken if (no := one.speedup.worth(context, slots)) is not None]
    for one, no in found:
        one.refuse(no)
    if found:
        settle(decisions, context)
    return [one for one, _ in found]


def candidates(decisions: Iterable[Decision]) -> list[Decision]:
    """Those that are to be tried and do not stand yet, in the order of installation."""
    left = [one for one in decisions if one.no is None and one.installed is None]
    return sorted(left, key=lambda one: (one.speedup.order, one.name))


def _asked(config: WholeConfig, speedup: Speedup) -> Decision:
    by_name = config.speedups.get(speedup.name)
    if by_name is not None:
        return Decision(speedup, by_name, f"speedups: {{{speedup.name}: {by_name}}}")
    asked = speedup.asked(config)
    if asked is not None:
        return Decision(speedup, *asked)
    return Decision(speedup, speedup.default, "")


def settle(decisions: Sequence[Decision], context: Context) -> None:
    """Of two that cannot be together, one stands back; what needs something that does not run is refused.

    Called again whenever one was refused: who stood back behind it is then a candidate. What stands already stays, and wins.
    Raises `ConfigError` where something is `on` and cannot be.
    """
    by_name = {one.name: one for one in decisions}
    wanted = _wanted(decisions, by_name)

    def place(one: Decision) -> tuple[bool, bool, bool, int, int, str]:
        first = one.installed is None, one.setting != "on", one.name not in wanted
        return *first, one.speedup.rank(context), one.speedup.order, one.name

    while True:
        for one in decisions:
            if one.behind is not None:
                one.no = one.behind = None
        taken: list[Decision] = []
        for one in sorted((one for one in decisions if one.no is None), key=place):
            rival = next((other for other in taken if conflict(one.speedup, other.speedup)), None)
            if rival is None:
                taken.append(one)
            elif one.setting == rival.setting == "on":
                raise ConfigError(
                    f"`{rival.asked_by}` and `{one.asked_by}` cannot be together: {rival.name} and {one.name} stand in the"
                    " same place. Keep one of the two."
                )
            else:
                one.stand_back(rival)
        lacking = _lacking(taken, by_name)
        if lacking is None:
            return
        one, no = lacking
        one.refuse(no)


def conflict(one: Speedup, other: Speedup) -> bool:
    """Whether the two cannot be together."""
    same_slot = one.slot is not None and one.slot == other.slot
    return same_slot or other.name in one.conflicts or one.name in other.conflicts


def giving_way(standing: Iterable[Decision], policy: Speedup) -> list[Decision]:
    """Of those that stand, which are taken out for a policy of activation memory that they cannot be beside."""
    return [
        one for one in standing if one.speedup.gives_way and one.setting == "auto" and conflict(policy, one.speedup)
    ]


def _wanted(decisions: Sequence[Decision], by_name: Mapping[str, Decision]) -> set[str]:
    """What is `on`, and what that needs: it goes before others that are `auto`."""
    wanted: set[str] = set()
    left = [one.name for one in decisions if one.setting == "on"]
    while left:
        name = left.pop()
        if name in by_name and name not in wanted:
            wanted.add(name)
            left += by_name[name].speedup.requires
    return wanted


def _lacking(taken: Sequence[Decision], by_name: Mapping[str, Decision]) -> tuple[Decision, No] | None:
    """One that needs what does not run, and why: first of all what cannot run, then what stands back behind another."""
    found: list[tuple[bool, Decision, No]] = []
    for one in taken:
        for name in one.speedup.requires:
            needed = by_name.get(name)
            if needed is None:
                found.append((False, one, No(f"it needs {name}, which there is not", expected=True)))
            elif needed.no is not None:
                no = No(f"it needs {name}, which does not run: {needed.no.reason}", needed.no.remedy, expected=True)
                found.append((needed.behind is not None, one, no))
    if not found:
        return None
    _, one, no = min(found, key=lambda each: each[0])
    return one, no
