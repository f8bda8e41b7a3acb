"""Runs a bench: memory of each arm in a fresh process, warm-up, then rounds of blocks until intervals are narrow enough."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynotune.bench.asked import Asked
from dynotune.bench.cast import Cast, environment_of, tier_for
from dynotune.bench.disturbed import clocks_apart, disturbance, note_of_clocks, note_of_host, recompiled
from dynotune.bench.guard import Guard
from dynotune.bench.hand import ArmFailedError, Hand
from dynotune.bench.result import Block, Memory, Tier
from dynotune.bench.schedule import Round, again, rounds, stop
from dynotune.bench.spans import Spans, shape_of
from dynotune.bench.statistics import half_width, log_ratios
from dynotune.errors import DynotuneError


@dataclass(slots=True)
class Measured:
    """What was seen, before anything is concluded."""

    asked: Asked
    tier: Tier
    why_tier: str
    cast: Cast
    device: dict[str, Any]
    """As the first process tells it."""

    blocks: list[Block] = field(default_factory=list)
    """In the order in which they ran."""

    available_flops: dict[str, float] = field(default_factory=dict)
    """By arm, FLOPs a second that its devices could do at most."""

    attainable_mfu: float | None = None
    """The best product of matrices that was measured here, as a share of the same peak."""

    memory: dict[str, Memory] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """By arm, why it could not be measured."""

    held_apart: dict[str, float] = field(default_factory=dict)
    """By arm, seconds of processes besides those of the blocks."""

    apart: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By two arms, how far their clocks were apart in each pair that was measured."""

    notes: list[str] = field(default_factory=list)
    """Of what watched the device."""

    lengths: dict[str, Sequence[int]] = field(default_factory=dict)
    same_documents: bool = True
    ended: str = ""
    """Why the rounds ended."""

    def counted(self, arm: str) -> dict[int, Block]:
        """Blocks that count, by round."""
        return {b.pair: b for b in self.blocks if b.arm == arm and b.void is None and not b.of_noise}

    def log_ratios(self, arm: str, against: str) -> dict[int, float]:
        """By round, of those in which both have a block that counts: ln(rate of the arm / rate of the other)."""
        mine, theirs = self.counted(arm), self.counted(against)
        return {n: math.log(mine[n].rate / theirs[n].rate) for n in mine if n in theirs}

    @property
    def noise(self) -> list[float]:
        """Log ratios of the first arm against itself."""
        found: dict[int, list[Block]] = {}
        for block in self.blocks:
            if block.of_noise and block.void is None:
                found.setdefault(block.pair, []).append(block)
        pairs = [pair for pair in found.values() if len(pair) == 2]
        return log_ratios([b.rate for _, b in pairs], [a.rate for a, _ in pairs])

    @property
    def devices(self) -> int:
        """That an arm has: of arms with other numbers the most."""
        return max(arm.config.gpus or 1 for arm in self.asked.arms)

    @property
    def spent(self) -> float:
        """GPU seconds: for which devices were held, times devices."""
        return self.devices * (sum(self.cast.held.values()) + sum(self.held_apart.values()))


def measure(asked: Asked, folder: Path, say: Callable[[str], None], spent_before: Mapping[str, float]) -> Measured:
    """folder: for processes' logs and run folders. spent_before: by arm, seconds of checks that came before.

    Raises `ArmFailedError` where the first arm cannot be measured: there is nothing to compare with.
    """
    environment = {**environment_of(asked.arms), **asked.environment}
    device, memory, failed, apart = _memory(asked, folder, environment, say)
    arms = [arm for arm in asked.arms if arm.name not in failed]
    tier, why = tier_for(arms, device["type"] == "cuda") if len(arms) > 1 else (Tier.SWITCH, "")
    if asked.tier is not None and asked.tier is not tier:
        if asked.tier is Tier.SWITCH:
            raise DynotuneError(f"These arms cannot live in one process: {why}. Leave `--tier` out.")
        tier, why = asked.tier, "as asked"
    cast = Cast(arms, tier, folder, environment, say)
    found = Measured(asked, tier, why, cast, device, memory=memory, failed=failed)
    found.held_apart = {arm.name: spent_before.get(arm.name, 0.0) + apart.get(arm.name, 0.0) for arm in asked.arms}
    try:
        with Guard(device.get("uuid")) as guard:
            _rounds(found, guard, say)
            found.notes = _notes_of(found, guard)
    finally:
        cast.close()
    return found


def _memory(
    asked: Asked, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Memory], dict[str, str], dict[str, float]]:
    """The device, and by arm the memory, why it failed, and the seconds that it took. A CPU has no such figure: one process
    says that it is one."""
    device: dict[str, Any] = {}
    found: dict[str, Memory] = {}
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for number, arm in enumerate(asked.arms):
        if device and not (asked.memory and device["type"] == "cuda"):
            break
        began = time.perf_counter()
        try:
            with Hand(arm, folder, 900 + number, say, dict(environment)) as hand:
                device = hand.device
                if asked.memory and device["type"] == "cuda":
                    hand.stand(arm)
                    found[arm.name] = Memory(**hand.do("worst"))
        except ArmFailedError as error:
            if arm is asked.arms[0] or error.kind == "bug":
                raise
            failed[arm.name] = reason(error)
            say(f"{arm.name}: {failed[arm.name]}")
        if device and device["type"] == "cuda":
            seconds[arm.name] = time.perf_counter() - began
    return device, found, failed, seconds


def reason(error: ArmFailedError) -> str:
    """Why an arm could not be measured, in a line."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else "it ended without a word"
    return f"out of memory: {first}" if error.kind == "memory" and "memory" not in first.lower() else first


def _rounds(found: Measured, guard: Guard, say: Callable[[str], None]) -> None:
    asked, cast = found.asked, found.cast
    for arm in cast.arms:
        _or_failed(found, arm.name, lambda name=arm.name: cast.warm_up(name), say)  # type: ignore[misc]
    spans = Spans(
        {name: shape_of(warm.stood, warm.tokens_a_step) for name, warm in cast.warm.items()},
        asked.steps_a_block,
        cast.begin,
    )
    found.same_documents = spans.same_documents
    names = [arm.name for arm in cast.arms]
    done, began, taken = 0, time.perf_counter(), set[tuple[int, int]]()
    for round_ in rounds(names, asked.seed, asked.rules) if len(cast.warm) > 1 else ():
        _round(found, guard, spans, round_, say)
        if round_.of_noise:
            continue
        taken.add(spans.of(names[0], round_.number))
        done += 1
        pairings = [one for one in asked.pairings if not {one.arm, one.against} & found.failed.keys()]
        ratios = [[*found.log_ratios(one.arm, one.against).values()] for one in pairings]
        widths = [half_width(one, found.noise) if len(one) >= 2 else math.inf for one in ratios]
        each = (time.perf_counter() - began) / done * found.devices
        found.ended = stop(widths, done, asked.rules, spent=found.spent, seconds_a_round=each)
        if found.ended or not pairings:
            break
    found.lengths = _lengths(cast, taken)
    products = cast.products() if device_has_products(found) else None
    peak = found.available_flops.get(names[0])
    found.attainable_mfu = products / peak if products and peak else None


def device_has_products(found: Measured) -> bool:
    """Whether a peak is known against which the best product could be held."""
    return found.device["type"] == "cuda" and bool(found.available_flops)


def _or_failed(found: Measured, name: str, what: Callable[[], Any], say: Callable[[str], None]) -> Any:
    """What `what` gives; None where that arm failed, which is then known of it. The first one's failure ends the bench."""
    try:
        return what()
    except ArmFailedError as error:
        if name == found.cast.arms[0].name or error.kind == "bug":
            raise
        found.failed[name] = reason(error)
        found.cast.fail(name)
        say(f"{name}: {found.failed[name]}")
        return None


def _notes_of(found: Measured, guard: Guard) -> list[str]:
    """What the reader must know of clocks and host."""
    said = [guard.note] if guard.note else []
    for (arm, first), apart in found.apart.items():
        said += [note] if arm != first and (note := note_of_clocks(arm, first, apart)) else []
    for name in found.cast.warm:
        blocks = list(found.counted(name).values())
        said += [note] if blocks and (note := note_of_host(blocks)) else []
    return said


def _lengths(cast: Cast, taken: set[tuple[int, int]]) -> dict[str, Sequence[int]]:
    """Of the first arm: tokens of the examples that were measured, and of all."""
    sample: list[int] = []
    plan: Sequence[int] = []
    for first, steps in sorted(taken):
        told = cast.lengths(first, steps)
        sample += told["sample"]
        plan = told["plan"]
    return {"sample": sample, "plan": plan}


def _round(found: Measured, guard: Guard, spans: Spans, round_: Round, say: Callable[[str], None]) -> None:
    """One block of every arm; what is void runs again, once."""
    order, times = [name for name in round_.arms if name not in found.failed], 0
    while order:
        times += 1
        made: list[Block] = []
        for name in order:
            block = _or_failed(found, name, lambda name=name: _block(found, guard, spans, round_, name), say)  # type: ignore[misc]
            made += [block] if block else []
        made = _with_voids(found, made)
        found.blocks += made
        for block in made:
            if block.void:
                say(f"{block.arm}: a block does not count: {block.void}")
        order = list(again(order, {block.arm for block in made if block.void}, times))


def _with_voids(found: Measured, made: Sequence[Block]) -> list[Block]:
    """The blocks of a round, those marked that do not count: each is held against that of the first arm there."""
    if len(made) < 2:  # one that runs again, by itself
        return [block.model_copy(update={"void": recompiled(block) or None}) for block in made]
    first, *others = sorted(made, key=lambda block: block.arm != found.asked.arms[0].name)
    void: dict[int, str] = {}
    for other in others:
        before = found.apart.setdefault((other.arm, first.arm), [])
        why = disturbance(other, first, before)
        if (apart := clocks_apart(other.clocks, first.clocks)) is not None:
            before.append(apart)
        if why:
            both = [block for block in (other, first) if block.recompiles] or [other, first]
            void |= {id(block): why for block in both}
    return [block.model_copy(update={"void": void.get(id(block))}) for block in made]


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
        seconds=taken["seconds"],
        step_seconds=tuple(taken["step_seconds"]),
        device_seconds=taken["device_seconds"],
        flops=taken["flops"],
        loss=taken["loss"],
        recompiles=moved.get("compilations", 0) + moved.get("kernels", 0),
        retries=moved.get("retries", 0),
        clocks=guard.window(*taken["when"]),
        of_noise=round_.of_noise,
    )
