"""Runs a bench: memory of each arm in a fresh process, warm-up, then rounds of blocks until intervals are narrow enough."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dynotune.bench.asking.arms import Arm, devices_of
from dynotune.bench.asking.asked import Asked, Pairing, led_by_who_runs
from dynotune.bench.asking.schedule import Round
from dynotune.bench.running.budget import GATE, MEMORY, WARM_UP, spent_by
from dynotune.bench.running.cast import Cast, on_gpu, thread_settings, tier_for
from dynotune.bench.running.guard import Guard
from dynotune.bench.running.rounds import noted, or_failed, play, reason
from dynotune.bench.running.spans import Spans, enough_steps, shape_of
from dynotune.bench.running.tally import Tally
from dynotune.bench.workers import device as machine
from dynotune.bench.workers.hand import ArmFailedError, Hand
from dynotune.errors import ConfigError
from dynotune.results.result import Block, Memory, Tier


@dataclass(slots=True, kw_only=True)
class Measured(Tally):
    """What was seen, before anything is concluded."""

    asked: Asked
    tier: Tier
    why_tier: str
    cast: Cast
    available_flops: dict[str, float] = field(default_factory=dict)
    """By arm, FLOPs a second that its devices could do at most."""

    attainable_mfu: float | None = None
    """The best product of matrices that was measured here, as a share of the same peak."""

    memory: dict[str, Memory] = field(default_factory=dict)
    gated: Mapping[str, float] = field(default_factory=dict)
    probed: Mapping[str, float] = field(default_factory=dict)
    """By arm, seconds of processes besides those of the blocks: of the gate, and of the probes of memory."""

    lengths: dict[str, Sequence[int]] = field(default_factory=dict)
    same_documents: bool = True

    @property
    def device(self) -> dict[str, Any]:
        """As the first process told it."""
        return self.cast.device

    def device_seconds(self, arm: Arm) -> float:
        """For which the arm held its devices, times these."""
        return sum(of_arms.get(arm.name, 0.0) for of_arms in self._held.values()) * devices_of(arm)

    @property
    def spent(self) -> float:
        """GPU seconds of all arms."""
        return sum(self.device_seconds(arm) for arm in self.asked.arms)

    def spent_before(self, what: str, needs: float = 0.0) -> str:
        """Why `what` must not begin, before the first round: the budget is spent. Empty where it may. needs: as of
        `spent_by`."""
        on = {part: gpu_seconds(self.asked, of_arms) for part, of_arms in self._held.items()}
        return spent_by(self.asked.rules, on, what, needs)

    @property
    def first_pair_seconds(self) -> float:
        """GPU seconds that a block of each arm takes about, by how it got warm. A process for each block warms up in it
        again, and finds compiled what the first one had to compile."""
        anew = self.cast.held if self.tier is Tier.FRESH else {}
        block = {
            name: max(0.0, anew.get(name, 0.0) - warm.compile_seconds) + self.asked.steps_a_block * warm.step_seconds
            for name, warm in self.cast.warm.items()
        }
        return gpu_seconds(self.asked, block)

    @property
    def _held(self) -> dict[str, Mapping[str, float]]:
        """By what they were spent on, seconds by arm. Of arms that live: for their warm-up, until rounds begin."""
        return {GATE: self.gated, MEMORY: self.probed, WARM_UP: self.cast.held}


def gpu_seconds(asked: Asked, seconds: Mapping[str, float]) -> float:
    """seconds: by arm, for which it held its devices."""
    return sum(seconds.get(arm.name, 0.0) * devices_of(arm) for arm in asked.arms)


def measure(
    asked: Asked,
    folder: Path,
    say: Callable[[str], None],
    gated: Mapping[str, float],
    between: Callable[[Measured, int], None] = lambda found, done: None,
) -> Measured:
    """folder: for processes' logs and run folders. gated: by arm, seconds of checks that came before. between: gets
    what was seen so far behind each round but the last, with how many were run.

    Where the budget is spent before all arms are warm, none of them has a block, and `unfinished` says why.

    Raises `ArmFailedError` where the first arm cannot be measured: there is nothing to compare with.
    """
    environment = thread_settings()
    gpu = on_gpu(asked.arms[0])
    memory, failed, unknown, probed = (
        _memory(asked, folder, environment, say, gated) if gpu and asked.memory else ({}, {}, [], {})
    )
    arms = [arm for arm in asked.arms if arm.name not in failed]
    tier, why = tier_for(arms, gpu) if len(arms) > 1 else (Tier.SWITCH, "")
    if asked.tier is not None and asked.tier is not tier:
        if asked.tier is Tier.SWITCH:
            raise ConfigError(f"`--tier switch`: these arms cannot live in one process: {why}. Leave `--tier` out.")
        tier, why = asked.tier, "as asked"
    cast = Cast(arms, tier, folder, environment, say, shares_of=asked.shares_of)
    found = Measured(
        names=[arm.name for arm in asked.arms], asked=asked, tier=tier, why_tier=why, cast=cast, memory=memory,
        failed=failed, notes=unknown, gated=gated, probed=probed,
    )  # fmt: skip
    try:
        _warm_up(found, say)
        if not found.unfinished and len(cast.warm) > 1:
            found.unfinished = found.spent_before("the first pair", found.first_pair_seconds)
        if found.unfinished:
            say(f"this is where it ends: {found.unfinished}")
            cast.device = cast.device or machine.ask(use_cpu=not gpu)
            return found
        with Guard(cast.device.get("uuid"), own=cast.processes) as guard:
            _rounds(found, guard, say, between)
            found = noted(found, guard)
    finally:
        cast.close()
    return found


def _warm_up(found: Measured, say: Callable[[str], None]) -> None:
    """Every arm for which there is budget. A sweep whose first one fails is held against the first that runs: it asks which
    value is fastest, and memory that runs out is an answer. Raises `ArmFailedError` where nothing is left to compare with.
    """
    cast, first = found.cast, found.names[0]
    for arm in cast.arms:
        if why := found.spent_before(f"{arm.name} was warm"):
            found.unfinished = why
            return
        what = partial(cast.warm_up, arm.name)
        or_failed(found, cast.fail, arm.name, what, say, first_may=found.asked.kind == "sweep")
    if first in found.failed:
        _led_anew(found)


def _led_anew(found: Measured) -> Sequence[Pairing]:
    """The pairings of a sweep whose first arm failed."""
    cast, first = found.cast, found.names[0]
    if not cast.warm.keys() - found.failed.keys():
        raise ArmFailedError(
            f"{first}: {found.failed[first]}; no other arm could be measured either", "user", cast.folder
        )
    found.asked = led_by_who_runs(found.asked, found.failed)
    found.names = [arm.name for arm in found.asked.arms]
    cast.arms = [arm for arm in found.asked.arms if arm.name in cast.warm]
    found.notes.append(f"{first} could not be measured: the other arms are held against {found.names[0]}.")
    return found.asked.pairings


def _memory(
    asked: Asked,
    folder: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    gated: Mapping[str, float],
) -> tuple[dict[str, Memory], dict[str, str], list[str], dict[str, float]]:
    """By arm the peak memory, why it failed; notes on what is not known; by arm the seconds that it took. A process each,
    which has seen no other arm.

    An arm whose largest micro-batch does not fit has failed; without the first one there would be no bench, and its blocks
    may fit. Of what ended otherwise the speed may still be measured: who cannot run at all says so when it is to be warm.
    """
    found: dict[str, Memory] = {}
    failed: dict[str, str] = {}
    unknown: list[str] = []
    seconds: dict[str, float] = {}
    for number, arm in enumerate(asked.arms):
        on = {GATE: gpu_seconds(asked, gated), MEMORY: gpu_seconds(asked, seconds)}
        if why := spent_by(asked.rules, on, "it was measured"):
            left = " and ".join(one.name for one in asked.arms[number:])
            unknown.append(f"The peak memory of {left} is not known: {why}.")
            break
        began = time.perf_counter()
        try:
            with Hand(arm, folder, 900 + number, dict(environment)) as hand:
                hand.stand(arm)
                found[arm.name] = Memory(**hand.do("worst"))
        except ArmFailedError as error:
            why = reason(error)
            if arm is asked.arms[0] or error.kind == "bug":
                unknown.append(f"The peak memory of {arm.name} is not known: {why.rstrip('.:')}.")
            else:
                failed[arm.name] = why
            say(f"{arm.name}: {why}")
        seconds[arm.name] = time.perf_counter() - began
    return found, failed, unknown, seconds


@dataclass(slots=True)
class _Player:
    """Takes blocks of configurations."""

    found: Measured
    guard: Guard
    spans: Spans

    def block(self, name: str, round_: Round) -> Block:
        return _block(self.found, self.guard, self.spans, round_, name)

    def drop(self, name: str) -> None:
        self.found.cast.fail(name)

    @property
    def spent(self) -> float:
        return self.found.spent


def _rounds(
    found: Measured, guard: Guard, say: Callable[[str], None], between: Callable[[Measured, int], None]
) -> None:
    """Blocks of all arms, round by round, until the rules end it; then what only a live process can tell."""
    cast = found.cast
    shapes = {name: shape_of(warm.stood, warm.tokens_a_step) for name, warm in cast.warm.items()}
    if found.asked.seconds_a_block:
        each = {name: warm.step_seconds for name, warm in cast.warm.items()}
        steps = enough_steps(shapes, each, found.asked.steps_a_block, found.asked.seconds_a_block)
        found.asked = replace(found.asked, steps_a_block=steps)
    asked = found.asked
    spans = Spans(shapes, asked.steps_a_block, cast.begin)
    found.same_documents = spans.same_documents
    names = [arm.name for arm in cast.arms]
    if len(cast.warm) > 1:
        player = _Player(found, guard, spans)

        def so_far(done: int) -> None:
            between(noted(found, guard), done)

        ladder, sweep = asked.kind == "ladder", asked.kind == "sweep"
        anew = partial(_led_anew, found) if sweep else None
        play(found, player, names, asked.pairings, asked.rules, asked.seed, say, so_far, ladder=ladder, led_anew=anew)
        names = [arm.name for arm in cast.arms]
    taken = {(b.first_step, b.steps) for b in found.counted(names[0]).values()}
    peak = found.available_flops.get(names[0])
    try:
        found.lengths, flops = cast.told(sorted(taken), products=bool(peak) and cast.device["type"] == "cuda")
    except ArmFailedError as error:  # what was measured stands
        why = reason(error).rstrip(".:")
        found.notes.append(f"Which lengths were measured, and the best product of matrices, are not known: {why}.")
        return
    if peak and flops:
        found.attainable_mfu = flops / peak


def _block(found: Measured, guard: Guard, spans: Spans, round_: Round, name: str) -> Block:
    number = found.asked.rules.most_pairs + round_.number if round_.of_noise else round_.number
    first, steps = spans.of(name, number)
    taken = found.cast.block(name, first, steps)
    guard.own = found.cast.processes
    if taken["available_flops_a_second"]:
        found.available_flops[name] = taken["available_flops_a_second"]
    moved: Mapping[str, Any] = taken["moved"]
    return Block(
        arm=name,
        pair=round_.number,
        first_step=first,
        steps=steps,
        examples=taken["examples"],
        documents=taken["documents"],
        real_tokens=taken["real_tokens"],
        label_tokens=taken["label_tokens"],
        processed_tokens=taken["processed_tokens"],
        sequence_tokens=taken["sequence_tokens"],
        seconds=taken["seconds"],
        step_seconds=tuple(taken["step_seconds"]),
        device_seconds=taken["device_seconds"],
        flops=taken["flops"],
        loss=taken["loss"],
        recompiles=sum(moved.get(name, 0) for name in ("compilations", "kernels", "graph_captures")),
        segments=0 if found.tier is Tier.FRESH else taken["moved_within"].get("segments", 0),
        retries=moved.get("retries", 0),
        clocks=guard.window(*taken["when"]),
        of_noise=round_.of_noise,
    )
