"""Everything that a preference run's steps are measured against, before the first of them.

Legend of shapes: P pairs of a data set, C values of a pair (chosen, rejected and, where tails are kept, the tail of either).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dynotune.config.dpo import DPOConfig
from dynotune.errors import TrainingError
from dynotune.execution.feed import Items
from dynotune.execution.pairs import PairItems
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.objectives.preference.pairs import Need
from dynotune.plan.plan import Plan
from dynotune.reference import (
    Key,
    ReferenceCache,
    begins_at_zero,
    measured_noise,
    start_changes_base,
    trained_under_adapter,
    unlike_trl,
    why_not_checked,
)
from dynotune.reference.check import Score
from dynotune.reference.compute import BATCH_TOKENS
from dynotune.reference.noise import EXACT
from dynotune.reference.pairs import WIDTH, pair_digests
from dynotune.train.preference.identity import files_of, is_exact, key_here, made_by, of_first_rank
from dynotune.train.preference.progress import scoring_progress
from dynotune.train.preference.scoring import Scoring, ScoringPath, reference_on
from dynotune.train.preference.step_zero import Check, Known, sample_of
from dynotune.train.start.recipe import Start
from dynotune.train.start.rehearse import rehearsed


def bring_reference(
    config: DPOConfig, objective: PreferenceObjective, start: Start
) -> "tuple[list[str], Bringing | None]":
    """Give every pair that the run meets its reference (`PairItems.reference_PC`), and see that the policy, which is still
    the same model, agrees with it in the first step. All ranks call it together.

    Returns what was said, for the run's record, and what brings more of it to a run that is only measured; None where the
    losses have no reference. Raises `TrainingError` where a value is not finite, or where policy and
    reference differ.
    """
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        start.say(line)

    if Need.REFERENCE not in objective.needs:
        tell("step 0: not checked: the loss has no reference")
        return told, None
    if (
        not start.continued_adapter
        and (line := unlike_trl(start.model, computed_before=bool(config.precompute_ref_log_probs))) is not None
    ):
        tell(line)
    bringing = Bringing(config, start, Need.TAILS in objective.needs, tell)
    known = bringing.known()
    if why := bringing.why_not_checked():
        tell(f"step 0: not checked: {why}")
    else:
        bringing.check(known)
    if start.device.type == "cuda":
        torch.cuda.empty_cache()  # blocks of these passes may lie where training needs larger ones
    return told, bringing


class Bringing:
    """The reference of one run: before its first step, and of a run that is only measured what further steps need."""

    def __init__(self, config: DPOConfig, start: Start, tails: bool, tell: Callable[[str], None]) -> None:
        """tails: whether the losses need them. tell: for what is to be known of the run afterwards."""
        self.config, self.start, self.tails, self.tell = config, start, tails, tell
        self.model, self.ranks = start.model, start.ranks
        self.plan, self.site = start.execution.plan, start.execution.site
        self.path = cast(ScoringPath, start.execution.path)
        self.train = _pairs(start.material.items)
        self.zero = begins_at_zero(self.model)
        self.keep_adapter = start.continued_adapter and not self.zero
        self.context = partial(reference_on, self.path, self.model, self.keep_adapter)
        self.scoring = Scoring(self.path, self.site, self.plan.ladder, start.device, 4 if tails else 2)
        self.score = self.scoring.of(self.train, self.plan.spans, self.context)
        self.first = self.plan.step(1)
        self.own = np.concatenate([batch.rows for batch in self.first.micro_batches])
        """Pairs of the first step that this rank trains."""

        self.exact = is_exact(self.site)
        self.bound = EXACT if self.exact else self._noise()
        self.files = files_of(config) if start.as_in_files else ()
        self.key = of_first_rank(self.key_now, self.ranks)
        by_files = self.files and not start_changes_base(self.model)
        self.train.reference = f"{'files' if by_files else 'tensors'} {self.key.weights}"

    def key_now(self) -> Key:
        return key_here(self.model, self.files, self.site, keep_adapter=self.keep_adapter, tails=self.tails)

    def known(self) -> Known:
        """The reference of the pairs of `rows`, or of the first step where each step computes it."""
        if self.config.precompute_ref_log_probs is False:
            why = why_not_in_step(self.model, self.keep_adapter)
            if why is None:
                self.path.in_step.context = self.context
                self.tell("reference: computed in every step, as `precompute_ref_log_probs: false` asks")
                return self._computed(self.own)
            self.tell(f"note: `precompute_ref_log_probs: false`: the reference is computed once all the same: {why}")
        if self.start.trained:
            if (found := self._of_those_before()) is not None:
                return found
            if why := why_not_in_step(
                self.model, self.keep_adapter
            ):  # computed now it would be kept as that of the files
                raise TrainingError(
                    f"The reference of pairs that nobody met before is gone: {why}, and they were trained."
                )
        if self.start.rehearsal:
            rows = [self.own, *(batch.rows for batch in rehearsed(self.plan))]
            known = self._computed(np.unique(np.concatenate(rows)))
        else:
            known = self._kept()
        self.train.reference_PC = known.values_PC
        return known

    def more(self, rows: NDArray[np.int64]) -> bool:
        """The reference of these pairs of the training data, too, where it is not there yet and no step computes it. Whether
        something was computed. All ranks call it together.

        The adapter may have been trained meanwhile, and nothing else: where anything else may have, `rows` was all of them.
        Raises `TrainingError` where it was not.
        """
        values_PC = self.train.reference_PC
        if self.path.in_step.context is not None or not values_PC.shape[1]:
            return False
        rows = np.unique(rows)
        lacking = rows[np.isnan(values_PC[rows]).any(1)]
        if not len(lacking):
            return False
        if why := why_not_in_step(self.model, self.keep_adapter):
            raise TrainingError(f"The reference of {len(lacking):,} pairs is gone: {why}, and they were trained.")
        found = self._obtained(self._cache(), self.train, lacking, self.score)
        self.train.reference_PC = np.where(np.isnan(values_PC), found.values_PC, values_PC)
        if self.start.device.type == "cuda":
            torch.cuda.empty_cache()  # as behind those before the first step
        return True

    def rows(self) -> NDArray[np.int64]:
        """Numbers of the pairs whose reference must be there before the first step, ascending."""
        asked = self.start.measured
        if asked is None or (asked.goes_on and why_not_in_step(self.model, self.keep_adapter) is not None):
            return rows_of_run(self.plan)
        return np.unique(np.concatenate([step.rows for step in islice(self.plan.steps(0), asked.steps)]))

    def _of_those_before(self) -> Known | None:
        """What the first that stood here computed, before any trained: the reference of weights that are there no more.

        None where it lacks pairs of this run. Whatever is computed now would be of trained weights, unless they are an
        adapter's alone, and kept it would be found later under the name of those in the files.
        """
        values_PC = self.train.reference_PC
        if values_PC.shape[1] != self.scoring.columns or np.isnan(values_PC[self.rows()]).any():
            return None
        self.tell("reference: that of the weights before anything trained here")
        return Known(values_PC, np.zeros((len(values_PC), WIDTH), np.uint8))

    def why_not_checked(self) -> str | None:
        """Why the policy of this run need not agree with its reference in the first step; None where it must."""
        if self.start.trained:
            return "the weights have been trained by what stood here before"
        why = why_not_checked(
            self.model,
            other_reference=False,
            reference_free=False,
            resumed=self.start.resumed,
            adapter_begins_at_zero=self.zero,
        )
        if why is None and self.config.neftune_noise_alpha:
            return "noise is added to embeddings in training (`neftune_noise_alpha`)"
        return why

    def check(self, known: Known) -> None:
        """Raises `TrainingError` where the policy does not agree."""
        as_policy = partial(reference_on, self.path, self.model, keep_adapter=True)
        check = Check(
            self.model,
            self.scoring,
            self.train,
            known,
            reference=self.score,
            policy=self.scoring.of(self.train, self.plan.spans, as_policy),
            as_written=self._as_written,
            key_then=self.key,
            key_now=self.key_now,
            bound=self.bound,
            exact=self.exact,
            ranks=self.ranks,
            say=self.tell,
        )
        check(self.first)

    def _as_written(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """`self.score` on the plain path, every sequence by itself."""
        way = self.start.execution.ways.plain()
        plain = replace(self.scoring, path=cast(ScoringPath, way.path), ladder=None, autocast=way.autocast)
        with way.around():
            return plain.of(self.train, self.plan.spans, self.context)(numbers)

    def _noise(self) -> float:
        sampled = sample_of(self.train.pairs.taken(self.own).label_counts, self.own)
        return float(max(self.ranks.gather(measured_noise(self.score, sampled))))

    def _computed(self, rows: NDArray[np.int64]) -> Known:
        """Of these pairs of the training data, without the cache."""
        return Known.of(self.train, rows, self.score(rows), pair_digests(self.train.pairs.taken(rows)))

    def _kept(self) -> Known:
        """Of the pairs of `rows`, and of held-out data where it is evaluated, from the cache as far as it is there."""
        cache = self._cache()
        known = self._obtained(cache, self.train, self.rows(), self.score)
        held_out = self.start.material.held_out if self.start.measured is None else {}  # nothing is evaluated there
        for name, held in held_out.items():
            items = _pairs(held.items)
            score = self.scoring.of(items, held.spans, self.context)
            of_held = replace(cache, name=f"reference of {name}")
            items.reference_PC = self._obtained(of_held, items, held.rows, score).values_PC
        return known

    def _cache(self) -> ReferenceCache:
        cache = ReferenceCache(
            self.key, made_by(self.site, self.start.execution.installed), self.bound, self.ranks, say=self.start.say
        )
        cache.batch_tokens = max(BATCH_TOKENS, 4 * self.plan.ladder.top if self.plan.ladder else 0)
        return cache

    def _obtained(self, cache: ReferenceCache, items: PairItems, rows: NDArray[np.int64], score: Score) -> Known:
        with scoring_progress(self.start.console, cache.say, bool(self.config.disable_tqdm)) as cache.progress:
            found = cache.obtain(items.pairs.taken(rows), lambda numbers: score(rows[numbers]))
        for sentence in found.sentences:
            self.tell(sentence)
        return Known.of(items, rows, found.values_PC, found.digests_P)


def _pairs(items: Items) -> PairItems:
    assert isinstance(items, PairItems)
    return items


def why_not_in_step(model: nn.Module, keep_adapter: bool) -> str | None:
    """Why steps cannot compute the reference that they need; None where they can."""
    if not hasattr(model, "peft_config"):
        return "without an adapter to switch off, a step would need a second model in memory"
    if keep_adapter or start_changes_base(model):
        return "the adapter as it is now is a part of it"
    if under := trained_under_adapter(model):
        return f"training changes parameters under the adapter, too ({under[0]}{', ...' if under[1:] else ''})"
    return None


def rows_of_run(plan: Plan) -> NDArray[np.int64]:
    """Numbers of the pairs that the plan's steps meet, ascending."""
    rows = plan.rows
    if plan.total_steps < plan.steps_per_epoch:
        documents, _, steps = plan.first_epoch
        rows = documents[: steps[plan.total_steps]]
    is_met = np.zeros(rows.max() + 1, bool)
    is_met[rows] = True
    return np.flatnonzero(is_met)
