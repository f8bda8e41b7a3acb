"""Of two arms, from the pairs of their blocks to a comparison with its verdict: nothing here knows what an arm is."""

import math
from collections.abc import Mapping, Sequence

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.judging.ceiling import Ceiling
from dynotune.bench.judging.verdict import compare_memory, judge
from dynotune.bench.running.tally import Tally
from dynotune.bench.statistics import estimate, noise_floor
from dynotune.results.result import Comparison, Memory, Noise, Verdict

NO_FLOOR = "no noise floor"
"""Begins what is said where the first arm was not held against itself."""


def comparison(
    tally: Tally,
    pairing: Pairing,
    noise: Sequence[float],
    seed: int,
    *,
    not_comparable: str,
    no_floor: str = "",
    mfu: float | None = None,
    attainable_mfu: float | None = None,
    memory: Mapping[str, Memory] | None = None,
    pays_back: float | None = None,
    ceiling: Ceiling | None = None,
) -> Comparison:
    """noise: log ratios of the first arm against itself; without any, `no_floor` says why (`caveat_of_noise`).
    memory: by arm. pays_back: steps until a longer set-up is made up for. The rest as in `judge`.
    """
    no_floor = "" if noise else no_floor or NO_FLOOR
    ratios = [*tally.log_ratios(pairing.arm, pairing.against).values()]
    seen = estimate(ratios, noise, seed=seed) if len(ratios) >= 2 else None
    judgement = judge(
        seen,
        not_comparable=not_comparable,
        no_floor=no_floor,
        unsettled=tally.unfinished or _unsettled(tally, pairing),
        ceiling=ceiling.ratio if ceiling is not None else None,
        mfu=mfu,
        attainable_mfu=attainable_mfu,
    )
    shown = judgement.verdict is not Verdict.NOT_COMPARABLE
    known = memory or {}
    peaks = compare_memory(known.get(pairing.arm), known.get(pairing.against))
    return Comparison(
        arm=pairing.arm,
        against=pairing.against,
        label=pairing.label,
        role=pairing.role,
        ratio=seen.interval if seen and shown else None,
        log_ratios=tuple(ratios) if shown else (),
        median=math.exp(seen.median) if seen and shown else None,
        sign_flip_p=seen.sign_flip_p if seen and shown else None,
        verdict=judgement.verdict,
        why=judgement.why,
        needs_more_pairs=judgement.needs_more_pairs,
        needs_more_seconds=_seconds(tally, pairing, judgement.needs_more_pairs),
        ceiling=ceiling.ratio if ceiling is not None else None,
        share=ceiling.share if ceiling is not None else None,
        no_ceiling=ceiling.why_not if ceiling is not None else "",
        memory=peaks[0] if peaks else None,
        memory_ratio=peaks[1] if peaks else None,
        # Of a difference that is none, or not known, the steps would be drawn by noise.
        pays_back_after_steps=pays_back if judgement.verdict is Verdict.FASTER else None,
    )


def caveat_of_noise(tally: Tally, wanted: int) -> str:
    """Why fewer pairs of the first arm against itself count than a bench has, `wanted`: as what stands for a floor. Empty
    where they do, and where no arm was left to compare."""
    found = len(tally.noise)
    if found >= wanted or not (tally.blocks or tally.unfinished):
        return ""
    if tally.by_budget or tally.unfinished:
        why = "the budget ended the bench first"
    elif not tally.ended:
        why = "the bench ended before it"
    else:
        why = f"blocks of {tally.names[0]} against itself did not count"
    return (
        f"noise floor from {'one pair' if found == 1 else f'{found} pairs'}: {why}" if found else f"{NO_FLOOR}: {why}"
    )


def note_of_end(tally: Tally) -> list[str]:
    """Why the rounds ended, as a sentence; none where it is said that they compare nothing, which tells it too."""
    return [f"The rounds ended: {tally.ended}."] if tally.ended and not tally.unfinished else []


def _seconds(tally: Tally, pairing: Pairing, pairs: int | None) -> float | None:
    """GPU seconds of so many more pairs; None where there is nothing to say, or nothing known."""
    each = tally.seconds_of((pairing.arm, pairing.against))
    return pairs * each if pairs and each else None


def noise_of(noise: Sequence[float]) -> Noise | None:
    """None where the first arm was not held against itself."""
    if not noise:
        return None
    floor = noise_floor(noise)
    note = (
        "blocks of the same arm were more than 1 % apart: a difference of arms has to clear more"
        if floor > 0.01
        else ""
    )
    return Noise(log_ratios=tuple(noise), floor=floor, note=note)


def _unsettled(tally: Tally, pairing: Pairing) -> str:
    """Why blocks were void each time; empty where enough of them count."""
    both = {pairing.arm, pairing.against}
    void = [block for block in tally.blocks if block.arm in both and block.void]
    if len(tally.pairs(pairing.arm, pairing.against)) >= 2 or not void:
        return ""
    return void[-1].void or ""
