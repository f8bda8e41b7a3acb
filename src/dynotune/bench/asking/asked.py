"""What a bench is asked: which arms, which of them are compared, and by which rules."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from dynotune.bench.asking.arms import Arm, in_words, shares_matter
from dynotune.bench.asking.schedule import Rules
from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError
from dynotune.results.result import Tier

Kind = Literal["ab", "ladder", "attribute", "sweep", "revisions", "foreign"]
Role = Literal["whole", "alone", "last", "interaction", "step"]
Half = Literal["alone", "last"]
"""Of an attribution: the other half has arms of its own."""

ALL = "all"
"""Name of the arm that has every change."""


class Pairing(NamedTuple):
    """Two arms that are compared, and what that says of a change."""

    arm: str
    against: str
    label: str
    role: Role


@dataclass(frozen=True, slots=True)
class Asked:
    """One bench. The first arm is the baseline."""

    kind: Kind
    arms: tuple[Arm, ...]
    pairings: tuple[Pairing, ...]
    rules: Rules
    steps_a_block: int
    seed: int
    out: Path
    """Folder of its files."""

    command: str
    tier: Tier | None = None
    """Where the arms live; None: where they can."""

    parity: Literal["gate", "full", "off"] = "gate"
    memory: bool = True
    seconds_a_block: float = 0.0
    """That a block of any arm takes at least: where `steps_a_block` take less, blocks have more. 0: they have not."""

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def shares_of(self) -> set[str]:
        """Arms of whose step somebody asks on what it is spent: of others it tells no ceiling."""
        pairs = [(self.arm(one.against), self.arm(one.arm)) for one in self.pairings]
        return {first.name for first, other in pairs if shares_matter(first, other)}


Walk = tuple[tuple[Arm, ...], tuple[Pairing, ...]]
"""Arms, of which the first is the baseline, and which of them are compared."""

Change = Mapping[str, Any]
"""Keys with the values that they are changed to; `speedups.NAME` is one speed-up."""


def changed(config: WholeConfig, change: Change) -> WholeConfig:
    """`config` with other values, checked as a whole."""
    plain = {key: value for key, value in change.items() if not key.startswith("speedups.")}
    named = {key.removeprefix("speedups."): value for key, value in change.items() if key.startswith("speedups.")}
    if named:
        plain["speedups"] = {**config.speedups, **plain.get("speedups", {}), **named}
    return config.replace(**plain)


def two(first: Arm, second: Arm) -> Walk:
    """One configuration against another."""
    if first.name == second.name:
        raise ConfigError(f"Both arms are called {first.name!r}. Name two.")
    return (first, second), (Pairing(second.name, first.name, second.name, "whole"),)


Needs = Mapping[str, Sequence[str]]
"""By change, those of the others without which it cannot be, and what these need in turn."""


def attributed(
    first: Arm, changes: Mapping[str, Change], needs: Needs = MappingProxyType({}), only: Half | None = None
) -> Walk:
    """The base, everything, each change alone and each left out: what a change does by itself, and what it adds as the last
    one. Their difference is its interaction with the others.

    A change that needs others stands beside them when it is alone, and is compared with them; where it is added last, who
    needs it is not there yet.

    only: one half, where both do not fit into one budget. Of the second one everything is the baseline: the base, which may
    take several times as long as all other arms, is in none of its comparisons.
    """
    if len(changes) == 1:
        name, change = next(iter(changes.items()))
        return two(first, Arm(name, changed(first.config, change)))
    made = _Made(first, changes)
    if only == "last":
        lead, pairings = made.of(changes, ALL), _last(made, needs)
        used = dict.fromkeys([lead.name, *(name for one in pairings for name in (one.arm, one.against))])
        return tuple(made.named(name) for name in used), pairings
    whole = made.whole
    return made.arms_of((whole, *_alone(made, needs), *(_last(made, needs) if only is None else ())))


def ladder(first: Arm, changes: Mapping[str, Change]) -> Walk:
    """The base, and each change added to those before it."""
    made = _Made(first, changes)
    steps = _steps(made)
    return made.arms_of((made.whole, *steps))


def attributed_on_a_ladder(first: Arm, changes: Mapping[str, Change], needs: Needs = MappingProxyType({})) -> Walk:
    """Both in one bench: what stands in both is one arm."""
    if len(changes) == 1:
        return attributed(first, changes)
    made = _Made(first, changes)
    steps = _steps(made)
    return made.arms_of((made.whole, *steps, *_alone(made, needs), *_last(made, needs)))


class _Made:
    """Arms by the changes that they have, each once."""

    def __init__(self, first: Arm, changes: Mapping[str, Change]) -> None:
        self.changes = changes
        self._arms: dict[frozenset[str], Arm] = {frozenset(): first}

    def of(self, names: Collection[str], called: str) -> Arm:
        """The arm with these changes, under the name by which it was first asked for."""
        kept = frozenset(names)
        if kept not in self._arms:
            config = self._arms[frozenset()].config
            for name in self.changes:
                config = changed(config, self.changes[name]) if name in kept else config
            self._arms[kept] = Arm(called, config)
        return self._arms[kept]

    def named(self, name: str) -> Arm:
        return next(arm for arm in self._arms.values() if arm.name == name)

    def arms_of(self, pairings: tuple[Pairing, ...]) -> Walk:
        """All arms that were asked for so far, the base before them, and what is compared."""
        return tuple(self._arms.values()), tuple(dict.fromkeys(pairings))

    @property
    def whole(self) -> Pairing:
        """Everything against the base."""
        return Pairing(self.of(self.changes, ALL).name, self.of((), "").name, ALL, "whole")


def _alone(made: _Made, needs: Needs) -> tuple[Pairing, ...]:
    pairings = list[Pairing]()
    for name in made.changes:
        under = [*needs.get(name, ())]
        below = made.of(under, " + ".join(under))
        mine = made.of([*under, name], " + ".join([*under, name]))
        pairings.append(Pairing(mine.name, below.name, name, "alone"))
    return tuple(pairings)


def _last(made: _Made, needs: Needs) -> tuple[Pairing, ...]:
    """Each behind all others but those that need it, which would be in its figure."""
    made.of(made.changes, ALL)
    with_it = {name: [one for one in made.changes if name not in needs.get(one, ())] for name in made.changes}
    left = {
        name: made.of([one for one in kept if one != name], f"all but {name}").name for name, kept in with_it.items()
    }
    return tuple(
        Pairing(made.of(kept, f"all but those that need {name}").name, left[name], name, "last")
        for name, kept in with_it.items()
    )


def _steps(made: _Made) -> tuple[Pairing, ...]:
    names = [*made.changes]
    rungs = [made.of((), ""), *(made.of(names[: i + 1], f"+ {name}") for i, name in enumerate(names))]
    return tuple(Pairing(b.name, a.name, name, "step") for (a, b), name in zip(pairwise(rungs), names, strict=True))


def sweep(config: WholeConfig, key: str, values: Sequence[Any]) -> Walk:
    """One arm a value of a key; each is compared with the first."""
    if len(values) < 2:
        raise ConfigError(f"`--sweep {key}` needs two values or more, such as `--sweep {key}=1,2`.")
    arms = [Arm(in_words({key: value}), changed(config, {key: value})) for value in values]
    if len({arm.name for arm in arms}) < len(arms):
        raise ConfigError(f"`--sweep {key}`: a value is given twice. Name each once.")
    return tuple(arms), _against_first(arms)


def led_by_who_runs(asked: Asked, failed: Collection[str]) -> Asked:
    """A sweep with the arms that failed behind the others: each is held against the first that runs."""
    arms = tuple(sorted(asked.arms, key=lambda arm: arm.name in failed))
    return replace(asked, arms=arms, pairings=_against_first(arms))


def _against_first(arms: Sequence[Arm]) -> tuple[Pairing, ...]:
    return tuple(Pairing(arm.name, arms[0].name, arm.name, "whole") for arm in arms[1:])
