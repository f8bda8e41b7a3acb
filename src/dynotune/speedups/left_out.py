"""Modules where a speed-up does not stand, as an `Installation` has them: `model.norm: a hook watches it`."""

from collections.abc import Iterable, Mapping

from dynotune.model.another_kind import OfAnotherKind


def left_out_of(others: Mapping[str, str]) -> tuple[str, ...]:
    """Of modules by name, each with the reason, those that one would expect to have it."""
    return tuple(f"{name}: {why}" for name, why in others.items() if not isinstance(why, OfAnotherKind))


def excepted_of(others: Mapping[str, str]) -> tuple[str, ...]:
    """Those of another kind than it is for."""
    return tuple(f"{name}: {why}" for name, why in others.items() if isinstance(why, OfAnotherKind))


def faults_of(others: Mapping[str, str]) -> list[str]:
    """Why those do not have it that one would expect to, each reason once. Empty where all are of another kind."""
    return sorted({str(why) for why in others.values() if not isinstance(why, OfAnotherKind)})


def modules_of(left_out: Iterable[str]) -> list[str]:
    """Their names."""
    return [one.partition(": ")[0] for one in left_out]


def in_words(one: str) -> str:
    """`model.norm (left out: a hook watches it)`."""
    name, _, why = one.partition(": ")
    return f"{name} (left out: {why})" if why else f"{name} (left out)"
