"""What the wall time of a run went to: kinds that leave no gap, and the share that was productive.

At any moment exactly one kind is going on, so the seconds of all kinds are the whole wall time.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """On a GPU by the device's clock: what the device had not done yet when the host went on is no wait."""

    FORWARD_BACKWARD = "forward_backward"
    COMMUNICATION = "communication"
    """Sums over ranks, and the wait for slower ranks. Sums that run beside the backward pass are in that."""

    OPTIMIZER = "optimizer"
    """Clipping, the update, the schedule."""

    DATA_WAIT = "data_wait"
    """The loop waited for a micro-batch."""

    HOST = "host"
    """Between steps: callbacks, logging, reading of metrics."""

    COMPILE = "compile"
    """Making graphs and kernels, by dynamo's own count."""

    FIRST_STEP = "first_step"
    """The rest of each process's first step: loading of kernels, allocation, autotuning."""

    PROOF = "proof"
    """Tracing of a step and reading of what it showed."""

    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    """The loop waited for a checkpoint; what is written beside training is not in it."""

    LOST = "lost"
    """Steps that were kept from the weights or had to be taken again, here or since an earlier process had no checkpoint of
    them."""

    LOADING = "loading"
    """Reading, tokenising and planning of data, and making the model."""

    SET_UP = "set_up"
    """The rest of what stands before the first step: choosing speed-ups, the reference, optimizer, checkpoint."""


PRODUCTIVE = frozenset({Kind.FORWARD_BACKWARD, Kind.COMMUNICATION, Kind.OPTIMIZER})

TRAINING = PRODUCTIVE | {Kind.DATA_WAIT, Kind.HOST, Kind.COMPILE, Kind.FIRST_STEP, Kind.LOST}
"""What `tokens_per_second` has in its denominator."""

Account = dict[str, float]
"""Seconds by kind. A `Kind` and its value are the same key."""


def add(account: Account, more: dict[Any, float] | Iterable[tuple[str, float]]) -> None:
    """Take in more seconds."""
    for kind, seconds in more.items() if isinstance(more, dict) else more:
        account[kind] = account.get(kind, 0.0) + seconds


def wall(account: Mapping[str, float]) -> float:
    """Seconds of all kinds."""
    return sum(account.values())


def training(account: Mapping[str, float]) -> float:
    """Seconds of what is training."""
    whole = 0.0
    for kind in account:  # of each step: a generator takes twice as long
        if kind in TRAINING:
            whole += account[kind]
    return whole


def goodput(account: Mapping[str, float]) -> float | None:
    """The productive share of the wall time; None where there is none."""
    whole = wall(account)
    return sum(seconds for kind, seconds in account.items() if kind in PRODUCTIVE) / whole if whole > 0 else None


def share(account: Mapping[str, float], kind: Kind) -> float:
    """Of the training time, the part of one kind; zero without training."""
    whole = training(account)
    return account.get(kind, 0.0) / whole if whole > 0 else 0.0


def times(account: Mapping[str, float]) -> dict[str, float]:
    """`time/<kind>` in seconds, for kinds that took any, in the order of `Kind`; together they are the wall time."""
    return {name: account[kind] for kind, name in _NAMES if account.get(kind)}


_NAMES = tuple((kind, f"time/{kind}") for kind in Kind)


def settled(step: Mapping[str, float], compiled: float, *, first: bool, kept: bool) -> Account:
    """One step's account, once it is known what it was.

    compiled: seconds that went to compilation, which lie within forward and backward. first: of its process. kept: whether
    it reached the weights.
    """
    found = dict(step)
    within = min(compiled, found.get(Kind.FORWARD_BACKWARD, 0.0))
    if within > 0:
        found[Kind.FORWARD_BACKWARD] -= within
        add(found, {Kind.COMPILE: within})
    moved = Kind.LOST if not kept else Kind.FIRST_STEP if first else None
    if moved is not None:
        for kind in PRODUCTIVE:
            add(found, {moved: found.pop(kind, 0.0)})
    return found
