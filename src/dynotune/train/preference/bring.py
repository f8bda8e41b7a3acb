"""Everything that a preference run's steps are measured against, before the first of them.

Legend of shapes: P pairs of a data set, C values of a pair (chosen, rejected and, where tails are kept, the tail of either).
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from dynotune.config.dpo import DPOConfig
from dynotune.execution.pairs import PairItems
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need
from dynotune.plan.plan import Plan
from dynotune.reference import ReferenceCache, as_reference, begins_at_zero, measured_noise, why_not_checked
from dynotune.reference.check import Score
from dynotune.reference.compute import BATCH_TOKENS
from dynotune.reference.noise import EXACT
from dynotune.reference.pairs import pair_digests
from dynotune.train.preference.identity import files_of, is_exact, key_here, made_by, of_first_rank
from dynotune.train.preference.progress import scoring_progress
from dynotune.train.preference.scoring import Scoring, ScoringPath
from dynotune.train.preference.step_zero import Check, Known, sample_of
from dynotune.train.recipe import Start
from dynotune.train.rehearse import largest


def bring_reference(config: DPOConfig, objective: PreferenceObjective, start: Start) -> list[str]:
    """Give every pair that the run meets its reference (`PairItems.reference_PC`), and see that the policy, which is still
    the same model, agrees with it in the first step. All ranks call it together.

    Returns what was said, for the run's record. Raises `TrainingError` where a value is not finite, or where policy and
    reference differ.
    """
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        start.say(line)

    if Need.REFERENCE not in objective.needs:
        tell("step 0: not checked: the loss has no reference")
        return lines
    if config.precompute_ref_log_probs is False:
        tell(
            "note: `precompute_ref_log_probs: false`: the reference is computed once nonetheless, with the same values"
        )
    model, device, ranks = start.model, start.device, start.ranks
    plan, site = start.execution.plan, start.execution.site
    train = start.material.items
    assert isinstance(train, PairItems)
    tails, exact = Need.TAILS in objective.needs, is_exact(site)
    zero = begins_at_zero(model)
    keep_adapter = start.continued_adapter and not zero
    context = partial(as_reference, model, keep_adapter=keep_adapter)
    scoring = Scoring(cast(ScoringPath, start.execution.path), site, plan.ladder, device, 4 if tails else 2)
    score = scoring.of(train, plan.spans, context)
    first = plan.step(1)
    own = np.concatenate([batch.rows for batch in first.micro_batches])
    sampled = sample_of(train.pairs.taken(own).label_counts, own)
    bound = EXACT if exact else max(ranks.gather(measured_noise(score, sampled)))
    files = files_of(config) if start.as_in_files else ()
    key_now = partial(key_here, model, files, site, keep_adapter=keep_adapter, tails=tails)
    key = of_first_rank(key_now, ranks)
    if start.rehearsal:
        rows = np.union1d(own, largest(plan).rows)
        known = Known.of(train, rows, score(rows), pair_digests(train.pairs.taken(rows)))
    else:
        cache = ReferenceCache(key, made_by(site, start.execution.installed), bound, ranks, say=start.say)
        cache.batch_tokens = max(BATCH_TOKENS, 4 * plan.ladder.top if plan.ladder else 0)
        off = bool(config.disable_tqdm)
        known = _obtained(cache, train, rows_of_run(plan), score, tell, start.console, off)
        for name, held in start.material.held_out.items():
            of_held = replace(cache, name=f"reference of {name}")
            items = held.items
            assert isinstance(items, PairItems)
            score_held = scoring.of(items, held.spans, context)
            found = _obtained(of_held, items, held.rows, score_held, tell, start.console, off)
            items.reference_PC = found.values_PC
    train.reference_PC = known.values_PC
    _let_go(device)
    why = why_not_checked(
        model, other_reference=False, reference_free=False, resumed=start.resumed, adapter_begins_at_zero=zero
    )
    if config.neftune_noise_alpha:
        why = why or "noise is added to embeddings in training (`neftune_noise_alpha`)"
    if why:
        tell(f"step 0: not checked: {why}")
        return lines
    policy = scoring.of(train, plan.spans, partial(as_reference, model, keep_adapter=True))
    check = Check(model, scoring, train, known, score, policy, key, key_now, bound, exact, ranks, tell)
    check(first)
    _let_go(device)
    return lines


def rows_of_run(plan: Plan) -> NDArray[np.int64]:
    """Numbers of the pairs that the plan's steps meet, ascending."""
    if plan.total_steps >= plan.steps_per_epoch:
        return np.unique(plan.rows)
    documents, _, steps = plan.first_epoch
    return np.unique(documents[: steps[plan.total_steps]])


def _obtained(
    cache: ReferenceCache,
    items: PairItems,
    rows: NDArray[np.int64],
    score: Score,
    tell: Callable[[str], None],
    console: Console,
    off: bool,
) -> Known:
    """The reference of the pairs `rows`, from the cache as far as it is there."""
    with scoring_progress(console, cache.say, off) as cache.progress:
        found = cache.obtain(items.pairs.taken(rows), lambda numbers: score(rows[numbers]))
    for sentence in found.sentences:
        tell(sentence)
    return Known.of(items, rows, found.values_PC, found.digests_P)


def _let_go(device: torch.device) -> None:
    """What the allocator keeps of these passes may lie where training needs larger blocks."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
