"""Which speed-ups a run takes: what was asked, what can be, what cannot be beside each other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.speedups.contract import Context, Installation, No, Setting, Speedup

Refusal = Callable[[Speedup, Context], No | None]
"""Why one is not to be tried although it is applicable, such as that its proof failed here before."""


@dataclass(slots=True)
class Decision:
    """What becomes of one speed-up."""

    speedup: Speedup
    setting: Setting
    asked_by: str
    """The key that asked, as written; empty where nobody did."""

    no: No | None = None
    """Why it does not run; None where it does or is to be tried."""

    installed: Installation | None = None

    @property
    def name(self) -> str:
        return self.speedup.name

    def refuse(self, no: No) -> None:
        """Leave it out. Raises `ConfigError` where it was asked for by name."""
        if self.setting == "on":
            remedy = f" To have it, {no.remedy}." if no.remedy else ""
            auto = "auto" if self.asked_by.endswith(": on") else f"speedups: {{{self.name}: auto}}"
            raise ConfigError(
                f"`{self.asked_by}`: {self.name} cannot run: {no.reason}.{remedy} Write `{auto}` to go on without it, which"
                " is then said."
            )
        self.no = no


def decide(
    config: SFTConfig,
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
    _settle_conflicts(decisions, context)
    _settle_requirements(decisions)
    return decisions


def candidates(decisions: Iterable[Decision], context: Context) -> list[Decision]:
    """Those to be tried, in the order of installation; of one slot in the order of rank."""
    left = [one for one in decisions if one.no is None]
    return sorted(left, key=lambda one: (one.speedup.order, one.setting != "on", one.speedup.rank(context), one.name))


def _asked(config: SFTConfig, speedup: Speedup) -> Decision:
    by_name = config.speedups.get(speedup.name)
    if by_name is not None:
        return Decision(speedup, by_name, f"speedups: {{{speedup.name}: {by_name}}}")
    asked = speedup.asked(config)
    if asked is not None:
        return Decision(speedup, *asked)
    return Decision(speedup, speedup.default, "")


def _settle_conflicts(decisions: list[Decision], context: Context) -> None:
    """Of two that cannot be together one goes: that which was not asked for by name, else that with the higher rank."""
    left = candidates(decisions, context)
    for i, one in enumerate(left):
        for other in left[i + 1 :]:
            if one.no is not None or other.no is not None or not conflict(one.speedup, other.speedup):
                continue
            if one.setting == other.setting == "on":
                raise ConfigError(
                    f"`{one.asked_by}` and `{other.asked_by}` cannot be together: {one.name} and {other.name} stand in the"
                    " same place. Keep one of the two."
                )
            loser, winner = (one, other) if _key(other, context) < _key(one, context) else (other, one)
            if one.speedup.slot is None or one.speedup.slot != other.speedup.slot:
                loser.no = No(f"{winner.name} stands in its place", f"switch {winner.name} off", expected=True)
            elif winner.setting == "on":  # of one slot the next is tried where the first cannot be, but not behind `on`
                loser.no = No(f"{winner.name} was asked for in its place", expected=True)


def _key(one: Decision, context: Context) -> tuple[bool, int, int, str]:
    return one.setting != "on", one.speedup.rank(context), one.speedup.order, one.name


def conflict(one: Speedup, other: Speedup) -> bool:
    """Whether the two cannot be together."""
    same_slot = one.slot is not None and one.slot == other.slot
    return same_slot or other.name in one.conflicts or one.name in other.conflicts


def _settle_requirements(decisions: list[Decision]) -> None:
    """Leave out what needs something that is left out, until nothing changes."""
    by_name = {one.name: one for one in decisions}
    changed = True
    while changed:
        changed = False
        for one in decisions:
            for name in one.speedup.requires if one.no is None else ():
                needed = by_name.get(name)
                if needed is None or needed.no is not None:
                    why = needed.no.reason if needed is not None and needed.no is not None else "there is none"
                    one.refuse(No(f"it needs {name}, which does not run: {why}", expected=True))
                    changed = True
                    break
