"""Before the first update the policy is its own reference: the log-ratios of the first step are zero, or something is wrong.

Legend of shapes: P pairs of the first step, C columns (chosen, rejected and, where they are kept, the tails of either).
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dynotune.errors import TrainingError
from dynotune.model.dropout import random_parts
from dynotune.reference.check import relative
from dynotune.reference.key import Key, differing
from dynotune.reference.pairs import as_bytes


class Culprit(StrEnum):
    """What differs between the policy's pass and the reference's."""

    TOKENS = "tokens"
    WEIGHTS = "weights"
    PRECISION = "precision"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class StepZero:
    """The first step, of which every log-ratio should be zero."""

    policy_PC: NDArray[np.float64]
    """Nats, as the training pass gave them."""

    reference_PC: NDArray[np.float64]
    """Nats, as they were kept."""

    bound: float
    """Of the log-probability (`check.relative`): `noise.EXACT` in float32, else `noise.measured_noise` or, where that
    is too little, `noise.rounding_of`."""

    @property
    def off(self) -> NDArray[np.float64]:
        """The largest relative log-ratio of each pair [P]."""
        worst: NDArray[np.float64] = relative(self.policy_PC, self.reference_PC).max(1, initial=0.0)
        return worst

    @property
    def breaches(self) -> NDArray[np.intp]:
        """Pairs, by their place in the step, that are beyond the bound."""
        return np.flatnonzero(~(self.off <= self.bound))

    def __str__(self) -> str:
        worst = self.off.max(initial=0.0)
        return (
            f"step 0: log-ratios of {len(self.off):,} pairs are within {worst:.2g} of their log-probability"
            f" (allowed: {self.bound:.2g})"
        )


@dataclass(frozen=True, slots=True)
class Suspects:
    """What was asked after a breach, all of the pairs of the step. [P, C] in nats."""

    fed_P: NDArray[np.uint8]
    """Digests [P, 16] of the tokens and masks that the training pass got (`pair_digests` of its documents)."""

    kept_P: NDArray[np.uint8]
    """Those that the reference belongs to (`Reference.digests_P`)."""

    key_now: Key
    """What the values depend on, as it is now. Its digest of the weights is of the same kind as `key_then`'s."""

    key_then: Key
    """The same when the reference was computed or taken."""

    reference_again_PC: NDArray[np.float64]
    """The reference computed again, now, as it is in `as_reference`."""

    policy_again_PC: NDArray[np.float64]
    """The policy by the reference's pass: `as_reference(keep_adapter=True)`."""


def stop_on_breach(step: StepZero, suspects: Suspects) -> None:
    """Raises `TrainingError`, which names the culprit, where a log-ratio of the first step is not zero."""
    breaches = step.breaches
    if not len(breaches):
        return
    culprit, why = explain(step, suspects)
    worst = int(np.argmax(step.off))
    policy, reference = step.policy_PC[worst, :2].tolist(), step.reference_PC[worst, :2].tolist()
    raise TrainingError(
        f"Before the first update the policy differs from its reference, and both are the same model: {len(breaches):,} of"
        f" {len(step.off):,} pairs are off, the worst by {step.off[worst]:.2g} of its log-probability (allowed:"
        f" {step.bound:.2g}; policy {policy}, reference {reference})."
        f" What differs: {culprit}. {why[0].upper()}{why[1:]}"
    )


def explain(step: StepZero, suspects: Suspects) -> tuple[Culprit, str]:
    """What differs, and a sentence on what to do. From what is surest to what remains."""
    fed, kept = as_bytes(suspects.fed_P), as_bytes(suspects.kept_P)
    if fed != kept:
        if sorted(fed) == sorted(kept):
            return (
                Culprit.ORDER,
                "the pairs of the step and their reference are the same, in another order. This is a bug.",
            )
        moved = sum(a != b for a, b in zip(fed, kept, strict=True))
        return Culprit.TOKENS, (
            f"{moved:,} pairs were fed other tokens or masks than the reference was computed of. Are `max_length`,"
            " `truncation_mode` and the chat template those of the data? If they are, this is a bug."
        )
    if _close(step.policy_PC, step.reference_PC[:, _exchanged(step.reference_PC.shape[1])], step.bound):
        return Culprit.ORDER, "chosen and rejected are exchanged. This is a bug."
    if _permuted(step.policy_PC, step.reference_PC, step.bound):
        return Culprit.ORDER, "each value of the policy is the reference's of another pair. This is a bug."
    parts = differing(suspects.key_then.told(), suspects.key_now)
    if parts:
        culprit = Culprit.WEIGHTS if {"the weights", "the model's configuration"} & set(parts) else Culprit.PRECISION
        return (
            culprit,
            f"{' and '.join(parts)} changed since the reference was computed. Start again from the same model.",
        )
    if not _close(suspects.reference_again_PC, step.reference_PC, step.bound):
        return Culprit.PRECISION, (
            "the reference computed again differs from the one that was kept, of the same weights: by a kernel or another"
            " precision. Remove the kept values (the folder that the run's notes name) and start again."
        )
    if not _close(suspects.policy_again_PC, step.reference_PC, step.bound):
        return Culprit.WEIGHTS, (
            "the adapter does not begin at zero, so that the policy is another model than its reference. Start from a new"
            " adapter that does (LoRA by default), or give a model that has it already (`get_peft_model` before the run):"
            " it is a part of its own reference then."
        )
    return Culprit.PRECISION, (
        "in evaluation the policy agrees with the reference, in training it does not: by dropout, or by a kernel that only"
        " the training pass uses. Switch speed-ups off one at a time to find it."
    )


def why_not_checked(
    model: nn.Module,
    *,
    other_reference: bool,
    reference_free: bool,
    resumed: bool,
    adapter_begins_at_zero: bool = True,
) -> str | None:
    """Why the policy's log-ratios need not be zero in the first step of this run; None where they must be.

    LoRA's own dropout is no reason where its adapter begins at zero: what is dropped is multiplied by zero.
    """
    if reference_free:
        return "the loss has no reference"
    if resumed:
        return "the run goes on from a later step"
    if other_reference:
        return "the reference is another model than the policy"
    names = [name for name in random_parts(model) if not (adapter_begins_at_zero and name.startswith("lora_dropout"))]
    if names:
        return (
            f"dropout is on in training and off in the reference ({', '.join(names[:3])}{', ...' if names[3:] else ''})"
        )
    return None


def _close(ours: NDArray[np.float64], theirs: NDArray[np.float64], bound: float) -> bool:
    return bool((relative(ours, theirs) <= bound).all())


def _exchanged(columns: int) -> list[int]:
    """Chosen for rejected, and the tail of one for that of the other."""
    return [1, 0, 3, 2][:columns]


def _permuted(policy_PC: NDArray[np.float64], reference_PC: NDArray[np.float64], bound: float) -> bool:
    """Sorted values are as good as any assignment: where one is within the bound, so is this one, up to equal values."""
    order, other = np.argsort(policy_PC[:, 0], kind="stable"), np.argsort(reference_PC[:, 0], kind="stable")
    return len(order) > 1 and _close(policy_PC[order], reference_PC[other], bound)
