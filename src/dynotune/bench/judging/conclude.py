"""From what was measured to a result: figures of each arm, comparisons with their verdicts, and the closing sentence."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dynotune.bench.asking.arms import devices_of, settings_of
from dynotune.bench.asking.asked import Pairing
from dynotune.bench.judging import expect
from dynotune.bench.judging.ceiling import Ceiling, ceiling
from dynotune.bench.judging.comparison import NO_FLOOR, caveat_of_noise, comparison, noise_of, note_of_end
from dynotune.bench.judging.describe import differences, operating_point, sample_of
from dynotune.bench.judging.gated import gates_for, note_of_gates, note_of_lead, worst
from dynotune.bench.judging.judged import judged
from dynotune.bench.judging.totals import notes_of_shared, notes_of_totals
from dynotune.bench.judging.unnamed import notes_of_unnamed
from dynotune.bench.judging.verdict import VOID_STATES, judge, why_not_comparable
from dynotune.bench.running.disturbed import note_of_length
from dynotune.bench.running.measure import Measured
from dynotune.bench.running.tally import Tally
from dynotune.bench.statistics import estimate
from dynotune.measure.steady import pays_back_after
from dynotune.measure.words import DEFINITIONS
from dynotune.results.result import Arm, Block, Comparison, Engaged, Parity, Result, Tier, Verdict, WarmUp


def conclude(
    found: Measured,
    parity: Sequence[Parity],
    targets: Sequence[expect.Target],
    *,
    machine: Mapping[str, Any],
    commit: str | None,
    notes: Sequence[str] = (),
) -> Result:
    """parity: what the gate said of arms. targets: of `--expect`. machine: of the device that was used. commit: of the
    project that was measured, where there is one."""
    asked = found.asked
    noise = found.noise
    arms = tuple(_arm(found, arm.name) for arm in asked.arms)
    comparisons = tuple(_comparison(found, pairing, parity, noise) for pairing in asked.pairings)
    warm = found.cast.warm
    first = next((warm[arm.name].stood for arm in asked.arms if arm.name in warm), None)
    result = Result(
        definitions=DEFINITIONS,
        name=asked.out.name,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=asked.kind,
        command=asked.command,
        commit=commit,
        operating_point=operating_point(asked, first, str(machine["device"])),
        machine=dict(machine),
        devices=devices_of(asked.arms[0]),
        work=first["work"] if first else "",
        model=first["model"] if first else {},
        tier=found.tier,
        why_tier=found.why_tier,
        seed=asked.seed,
        steps_a_block=asked.steps_a_block,
        schedule=tuple(block.arm for block in found.blocks),
        sample=sample_of(found),
        noise=noise_of(noise),
        noise_caveat=caveat_of_noise(found, asked.rules.noise_pairs),
        arms=arms,
        comparisons=(*comparisons, *interactions(found, comparisons, noise, asked.seed)),
        parity=tuple(parity),
        differences=tuple(differences(found)),
        notes=(
            *notes,
            *note_of_gates(comparisons, parity),
            *note_of_lead(comparisons, parity, found.failed),
            *notes_of_totals(comparisons, arms),
            *notes_of_shared(arms),
            *notes_of_unnamed(asked, _standing(found)),
            *_notes(found),
        ),
        sentence="",
        gpu_seconds=found.spent,
        budget_seconds=asked.rules.budget_seconds,
        unfinished=found.unfinished,
    )
    return judged(result, targets)


def _arm(found: Measured, name: str) -> Arm:
    asked = found.asked
    config, first = asked.arm(name).config, asked.arms[0].config
    warm = found.cast.warm.get(name)
    blocks = tuple(block for block in found.blocks if block.arm == name)
    return Arm(
        name=name,
        settings=settings_of(first, config),
        config=config.public_dict(),
        devices=devices_of(asked.arm(name)),
        failed=found.failed.get(name),
        examples_a_step=warm.stood["examples_a_step"] if warm else None,
        steps_an_epoch=warm.stood["steps_an_epoch"] if warm else None,
        blocks=blocks,
        warm_up=WarmUp(
            steps=warm.steps,
            seconds=warm.seconds,
            first_step_seconds=warm.first_step_seconds,
            set_up_seconds=warm.set_up_seconds,
            compile_seconds=warm.compile_seconds,
            trace_seconds=warm.trace_seconds,
            events=warm.events,
            stationary=warm.stationary,
        )
        if warm
        else None,
        switch_seconds=tuple(found.cast.switches.get(name, ())),
        memory=found.memory.get(name),
        engaged=engaged(found.cast.proofs.get(name, ())),
        gpu_seconds=found.device_seconds(asked.arm(name)),
        mfu=_mfu(found, name),
        **_final_loss(found, name),
        said=tuple(warm.stood["said"]) if warm else (),
    )


WEIGHTS = {
    Tier.SWITCH: "of weights that all arms train in turn",
    Tier.RESIDENT: "of weights that it alone trains",
    Tier.FRESH: "of weights that begin anew with each block",
}
"""What a loss is of, by where arms live: only where each has weights of its own does it say how far one has come."""


def _final_loss(found: Measured, name: str) -> dict[str, Any]:
    """The last that the arm was seen to have, and what it is of."""
    warm = found.cast.warm.get(name)
    loss, when = found.last_loss(name), "its last block"
    if loss is None and warm is not None:
        loss, when = warm.loss, "its warm-up"
    return {"final_loss": loss, "final_loss_of": "" if loss is None else f"{when}, {WEIGHTS[found.tier]}"}


def engaged(rows: Sequence[Mapping[str, Any]]) -> tuple[Engaged, ...]:
    """Of the rows of an engagement table, those that were to run or might have surprised."""
    return tuple(
        Engaged(
            name=row["name"],
            state=row["state"],
            seen=row["seen"] if row["of"] else None,
            expected=row["of"] or None,
            evidence=row["evidence"],
        )
        for row in rows
        if row["state"] != "left out" or not row["expected"]
    )


def _mfu(found: Measured, name: str) -> float | None:
    blocks = found.counted(name).values()
    available = found.available_flops.get(name)
    if not available or any(block.flops is None for block in blocks) or not blocks:
        return None
    return sum(block.flops or 0.0 for block in blocks) / (available * sum(block.seconds for block in blocks))


def _comparison(found: Measured, pairing: Pairing, parity: Sequence[Parity], noise: Sequence[float]) -> Comparison:
    failed = found.failed.get(pairing.arm) or found.failed.get(pairing.against)
    own, standing = gates_for(parity, pairing, found.asked.pairings)
    by = ", ".join(f"{one.arm} against {one.against}" for one in standing)
    return comparison(
        found,
        pairing,
        noise,
        found.asked.seed,
        not_comparable=why_not_comparable(own or worst(standing), _in_question(found, pairing), failed=failed),
        no_floor=caveat_of_noise(found, found.asked.rules.noise_pairs),
        mfu=_mfu(found, pairing.arm),
        attainable_mfu=found.attainable_mfu,
        memory=found.memory,
        pays_back=_pays_back(found, pairing),
        ceiling=_ceiling(found, pairing),
    ).model_copy(update={"gated_by": by})


def _ceiling(found: Measured, pairing: Pairing) -> Ceiling | None:
    """None where an arm was not measured."""
    warm = found.cast.warm
    if not {pairing.arm, pairing.against} <= warm.keys():
        return None
    first, other = found.asked.arm(pairing.against), found.asked.arm(pairing.arm)
    blocks = found.counted(first.name).values()
    tokens = sum(block.real_tokens for block in blocks)
    return ceiling(
        first,
        other,
        (warm[first.name].stood, warm[other.name].stood),
        found.cast.spent.get(first.name),
        sum(block.seconds for block in blocks) / tokens if tokens else None,
    )


def _in_question(found: Measured, pairing: Pairing) -> list[Engaged]:
    """What a trace says of the speed-ups that the arm has and the other has not."""
    proofs, warm = found.cast.proofs, found.cast.warm
    if pairing.arm not in warm or pairing.against not in warm:
        return []
    settings = settings_of(found.asked.arm(pairing.against).config, found.asked.arm(pairing.arm).config)
    named = {
        key.removeprefix("speedups.")
        for key, value in settings.items()
        if key.startswith("speedups.") and value != "off"
    }
    new = named | {*warm[pairing.arm].stood["installed"]} - {*warm[pairing.against].stood["installed"]}
    rows = [row for row in proofs.get(pairing.arm, ()) if row["name"] in new]
    return [
        Engaged(name=row["name"], state=row["state"], seen=row["seen"], expected=row["of"], evidence=row["evidence"])
        for row in rows
    ]


def _standing(found: Measured) -> dict[str, set[str]]:
    """By arm that got warm, the speed-ups that stand in it: not what its proof took out again."""
    proofs = found.cast.proofs
    void = {arm: {row["name"] for row in rows if row["state"] in VOID_STATES} for arm, rows in proofs.items()}
    return {arm: {*warm.stood["installed"]} - void.get(arm, set()) for arm, warm in found.cast.warm.items()}


def _pays_back(found: Measured, pairing: Pairing) -> float | None:
    warm = found.cast.warm
    if not {pairing.arm, pairing.against} <= warm.keys() or found.tier.value.startswith("one process,"):
        return None  # in one process the second arm begins in what the first one has made warm
    mine, theirs = warm[pairing.arm], warm[pairing.against]
    extra = (mine.set_up_seconds + mine.seconds) - (theirs.set_up_seconds + theirs.seconds)
    step = _seconds_a_step(found.counted(pairing.arm)), _seconds_a_step(found.counted(pairing.against))
    return None if None in step else pays_back_after(extra, *step)  # type: ignore[arg-type]


def _seconds_a_step(blocks: Mapping[int, Block]) -> float | None:
    steps = sum(block.steps for block in blocks.values())
    return sum(block.seconds for block in blocks.values()) / steps if steps else None


def interactions(
    found: Tally, comparisons: Sequence[Comparison], noise: Sequence[float], seed: int
) -> list[Comparison]:
    """Of each change: what it adds as the last one over what it does alone. noise: log ratios of the first arm against
    itself, of which a difference of two ratios has twice the variance."""
    made, of_two = [], [math.sqrt(2) * one for one in noise]
    alone = {one.label: one for one in comparisons if one.role == "alone"}
    for last in comparisons:
        first = alone.get(last.label)
        if last.role != "last" or first is None or Verdict.NOT_COMPARABLE in (first.verdict, last.verdict):
            continue
        before, behind = (found.log_ratios(one.arm, one.against) for one in (first, last))
        pairs = [behind[n] - before[n] for n in behind if n in before]
        if len(pairs) < 2:
            continue
        seen = estimate(pairs, of_two, seed=seed)
        judgement = judge(seen, no_floor="" if noise else NO_FLOOR)
        made.append(
            Comparison(
                arm=last.arm,
                against=last.against,
                label=last.label,
                role="interaction",
                ratio=seen.interval,
                log_ratios=tuple(pairs),
                verdict=judgement.verdict,
                why=judgement.why,
            )
        )
    return made


def _notes(found: Measured) -> list[str]:
    """What the reader must know besides."""
    said = [warm.note for warm in found.cast.warm.values() if warm.note] + found.notes
    said += [f"A step of {name} holds {what}." for name, warm in found.cast.warm.items() for what in warm.unwanted]
    if not found.asked.seconds_a_block:
        blocks = {name: [*found.counted(name).values()] for name in found.names}
        note = note_of_length(blocks, "leave `--steps` out, or give {times} times as many")
        said += [note] if note else []
    return [*said, *note_of_end(found)]
