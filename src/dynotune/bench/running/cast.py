"""The arms on their stage: in one process that switches between them, in one each, or in a new one for every block."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dynotune.bench.asking.arms import Arm, all_pairs, devices_of
from dynotune.bench.workers.hand import Hand
from dynotune.measure.steady import LEVEL_STEPS, WarmingUp
from dynotune.results.result import Tier

CHUNK = 5
"""Steps of the warm-up between two looks at whether it is over."""


@dataclass(slots=True)
class Warm:
    """How an arm got warm."""

    stood: dict[str, Any]
    steps: int
    seconds: float
    first_step_seconds: float
    set_up_seconds: float
    compile_seconds: float
    events: tuple[str, ...]
    stationary: bool
    note: str
    tokens_a_step: float
    """Real ones."""

    step_seconds: float
    """Median of the last steps."""

    trace_seconds: float = 0.0
    """What its trace took besides the traced step."""

    unwanted: tuple[str, ...] = ()
    """What that step should not have held."""

    loss: float | None = None
    """The last that was logged."""


@dataclass(slots=True)
class Cast:
    """Runs blocks of arms. A context manager's end is `close`."""

    arms: Sequence[Arm]
    tier: Tier
    folder: Path
    environment: Mapping[str, str]
    say: Callable[[str], None]
    warm: dict[str, Warm] = field(default_factory=dict)
    """By arm, the first time that it was warmed up."""

    proofs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    spent: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By arm, what its traced step spent its time on."""

    device: dict[str, Any] = field(default_factory=dict)
    """What the first process said of the machine."""

    held: dict[str, float] = field(default_factory=dict)
    """Seconds for which each arm had the device."""

    switches: dict[str, list[float]] = field(default_factory=dict)
    """By arm, the seconds that each change back to it took."""

    shares_of: Collection[str] | None = None
    """Arms of whose step somebody asks on what it is spent; None: of all."""

    _hands: dict[str, Hand] = field(default_factory=dict)
    _standing: str = ""
    _warmed: set[str] = field(default_factory=set)
    """Arms that were warmed up in a process that lives."""

    _number: int = 0

    def warm_up(self, name: str) -> None:
        """An arm until it is level. Raises `ArmFailedError`."""
        self._stand(self._arm(name))
        if self.tier is Tier.FRESH:
            self._end(name)

    @property
    def begin(self) -> int:
        """The step behind which blocks may begin."""
        return max(one.steps for one in self.warm.values())

    def fail(self, name: str) -> None:
        """The process of an arm that failed is of no use any more, also for others that stood in it."""
        self._end("" if self.tier is Tier.SWITCH else name)
        self.warm.pop(name, None)

    def block(self, name: str, first: int, steps: int) -> dict[str, Any]:
        """Let an arm take the plan's steps from `first` on. Raises `ArmFailedError`."""
        hand = self._stand(self._arm(name))
        began = time.perf_counter()
        try:
            return hand.do("take", first=first, steps=steps)
        finally:
            if self.tier is Tier.FRESH:
                self._end(name)
            self._count(name, time.perf_counter() - began)

    def told(self, spans: Sequence[tuple[int, int]], *, products: bool) -> tuple[dict[str, Any], float | None]:
        """What only a process in which the first arm stands can tell: tokens of the examples in these steps and of all;
        FLOPs a second of all its devices together, by the best product of matrices that they were seen to make.

        Where every block had a process of its own, one more begins for both, and takes no step.
        """
        first = self.arms[0]
        began = time.perf_counter()
        if self.tier is Tier.FRESH:
            self._number += 1
            with Hand(first, self.folder, self._number, dict(self.environment)) as hand:
                hand.stand(first)
                found = self._told(hand, spans, products)
        else:
            found = self._told(self._stand(first), spans, products)
        self._count(first.name, time.perf_counter() - began)
        return found

    def _told(
        self, hand: Hand, spans: Sequence[tuple[int, int]], products: bool
    ) -> tuple[dict[str, Any], float | None]:
        lengths = hand.do("lengths", spans=[list(span) for span in spans])
        flops = hand.do("products")["flops"] * devices_of(self.arms[0]) if products else None
        return lengths, flops

    @property
    def processes(self) -> set[int]:
        """Of the arms that live."""
        return {hand.process.pid for hand in self._hands.values()}

    def close(self) -> None:
        """End every process."""
        for hand in self._hands.values():
            hand.close()
        self._hands.clear()

    def _arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def _stand(self, arm: Arm) -> Hand:
        """A process in which this arm stands, warmed up the first time that it stands in it."""
        key = "" if self.tier is Tier.SWITCH else arm.name
        hand, began = self._hands.get(key), time.perf_counter()
        if hand is None:
            self._number += 1
            hand = self._hands[key] = Hand(arm, self.folder, self._number, dict(self.environment))
            self._standing = ""
            self.device = self.device or hand.device
        if arm.name not in self._warmed or (self.tier is Tier.SWITCH and self._standing != arm.name):
            stood = hand.stand(arm, self.shares_of is None or arm.name in self.shares_of)
            self._standing = arm.name
            if arm.name in self._warmed:
                self.switches.setdefault(arm.name, []).append(time.perf_counter() - began)
            else:
                self._warm(arm, hand, stood, time.perf_counter() - began)
                self._warmed.add(arm.name)
            self._count(arm.name, time.perf_counter() - began)
        return hand

    def _warm(self, arm: Arm, hand: Hand, stood: dict[str, Any], set_up: float) -> None:
        """Steps from the first on, until nothing moves and they are level."""
        warming: WarmingUp | None = None
        first = 1
        first_step, tokens, loss = 0.0, 0, None
        last: list[float] = []
        while warming is None or not warming.over:
            steps = 1 if warming is None else min(CHUNK, warming.lacking)
            taken = hand.do("take", first=first, steps=steps, discarded=0, watches_counters=True)
            if warming is None:
                first_step = taken["seconds"]
                warming = WarmingUp(counters=dict.fromkeys(taken["counters"][0], 0))
            last = [*last, *taken["step_seconds"]][-LEVEL_STEPS:]
            for each in zip(taken["step_seconds"], taken["counters"], taken["step_tokens"], strict=True):
                warming.step(*each)
            tokens += taken["real_tokens"]
            loss = loss if taken["loss"] is None else taken["loss"]
            first += steps
        proof = hand.do("proof", name=arm.name)
        if rows := proof["rows"]:
            self.proofs.setdefault(arm.name, rows)
        if spent := proof["spent"]:
            self.spent.setdefault(arm.name, spent)
        if arm.name not in self.warm:
            self.warm[arm.name] = Warm(
                stood=stood,
                steps=warming.steps,
                seconds=warming.seconds,
                first_step_seconds=first_step,
                set_up_seconds=set_up,
                compile_seconds=hand.do("compiled")["seconds"],
                events=tuple(warming.events),
                stationary=warming.stationary,
                note=warming.note,
                tokens_a_step=tokens / warming.steps,
                step_seconds=median(last),
                trace_seconds=proof["seconds"],
                unwanted=tuple(proof["unwanted"]),
                loss=loss,
            )
        self.say(f"{arm.name}: warm after {warming.steps} steps, {warming.seconds:.1f} s")

    def _end(self, key: str) -> None:
        """Of a process; arms that stood in it are cold again."""
        if hand := self._hands.pop(key, None):
            hand.close()
        self._warmed -= set(self.warm) if key == "" else {key}

    def _count(self, name: str, seconds: float) -> None:
        self.held[name] = self.held.get(name, 0.0) + seconds


def on_gpu(arm: Arm) -> bool:
    """Whether it runs on one here."""
    return torch.cuda.is_available() and not arm.config.use_cpu


def tier_for(arms: Sequence[Arm], on_gpu: bool) -> tuple[Tier, str]:
    """Where these arms can live, and why."""
    apart = sorted({key for pair in all_pairs(arms) for key in pair.not_in_process})
    if not apart:
        return Tier.SWITCH, "what differs can be taken out of one model and put in again"
    named = ", ".join(apart[:4]) + (f" and {len(apart) - 4} more" if len(apart) > 4 else "")
    if not on_gpu:
        return Tier.RESIDENT, f"{named} cannot change in a process"
    # On a GPU an arm takes the memory that it finds free: beside another one it would be another arm.
    return Tier.FRESH, f"{named} cannot change in a process, and arms side by side would share the GPU's memory"


def thread_settings() -> dict[str, str]:
    """Variables for the processes of arms: as many threads in every one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", str(cores))
    return {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
