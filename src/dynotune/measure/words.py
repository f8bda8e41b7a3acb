"""The words of every figure, each defined once: tokens, fill, rates, utilisation, and the version of these definitions.

Counts are int64 or Python's own integers, so no sum can wrap. Everything here is pure arithmetic: what is counted comes from
the plan, what is timed from the device's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dynotune.errors import DataError

if TYPE_CHECKING:
    from dynotune.plan.plan import Step

DEFINITIONS = 2
"""Version of the definitions in `measure/`. Raised when a figure of the same run would come out differently; it stands in
every result, and results of two versions are never compared."""

WARM_UP_STEPS = 10
"""Steps of a process that the steady figures leave out (and the rest of the window that they end in). What a warm-up really
is, compilation and allocation seen to end, this number does not know; so the figures of all steps stand beside them."""

BEST_POSSIBLE = 1.0
"""A share of the peak above this one shows a wrong peak, a wrong clock or a wrong count, and is said to be impossible."""


def real_tokens(step: "Step") -> int:
    """Tokens of documents that the step's micro-batches compute, on all ranks. Padding is not among them, what several
    documents begin with counts as often as it is computed, and a last token that is not computed does not count."""
    return int(step.real_tokens)


def processed_tokens(step: "Step") -> int:
    """Tokens that the step's micro-batches push through the model, on all ranks: real ones and padding."""
    return int(step.processed_tokens)


def pad_tokens(real: int, processed: int) -> int:
    """Processed tokens that belong to no document."""
    assert real <= processed, (real, processed)
    return processed - real


def fill(real: int, processed: int) -> float | None:
    """Real tokens as a share of processed ones; None where nothing was processed."""
    return real / processed if processed else None


def saved_share(real: int, alone: int) -> float | None:
    """Share of the tokens of all documents of pairs that were not computed, since another document begins with them; None
    where there are none such."""
    return 1 - real / alone if alone > real else None


def per_second(count: int, seconds: float) -> float | None:
    """A rate over the whole wall time of a window; None for an empty one."""
    return count / seconds if seconds > 0 else None


def utilisation(flops: int, available_flops: float) -> float | None:
    """Share of the peak: FLOPs of *all* devices together over what all of them could have done in the same time.

    MFU with model FLOPs, HFU with hardware FLOPs. `available_flops` is the sum over windows and devices of seconds times
    peak, so a run that moved to another device is weighed right.
    """
    return flops / available_flops if available_flops > 0 else None


@dataclass(slots=True)  # not frozen: one is made in each step, and a frozen one takes three times as long
class Counts:
    """What one step, or the sum of several, holds."""

    examples: int = 0
    """Training rows."""

    pairs: int = 0
    """Those of them that are pairs."""

    documents: int = 0
    """Spans of tokens that attend to themselves only."""

    real_tokens: int = 0
    label_tokens: int = 0
    """Tokens that carry loss."""

    processed_tokens: int = 0
    empty_tokens: int = 0
    """Processed tokens of micro-batches without a document: a rank had none left."""

    sequence_tokens: int = 0
    """What documents have, one by one: more than the real tokens where several share their beginning, or where their last
    tokens are not computed."""

    @classmethod
    def of(cls, step: "Step") -> "Counts":
        """The whole step, all ranks together: from the plan, which every rank knows. An example is one document, a pair
        two."""
        return cls.of_steps((step,))

    @classmethod
    def of_steps(cls, steps: "Sequence[Step]") -> "Counts":
        """The same of several together: ten take little longer than three."""
        examples = pairs = documents = real = labels = processed = empty = whole = 0
        for step in steps:
            here = len(step.lengths)
            alone = step.lengths if step.attention is None else step.attention[0]
            whole += step.sequence_tokens or int(np.add.reduce(alone))
            examples += here
            documents += len(alone)
            if len(alone) == 2 * here:
                pairs += here
            real += real_tokens(step)
            labels += step.label_tokens
            for batches in (step.micro_batches, step.elsewhere):
                for batch in batches:
                    processed += batch.tokens
                    if not len(batch.rows):
                        empty += batch.tokens
        return cls(examples, pairs, documents, real, int(labels), int(processed), int(empty), whole)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    @property
    def pad_tokens(self) -> int:
        return pad_tokens(self.real_tokens, self.processed_tokens)

    @property
    def fill(self) -> float | None:
        return fill(self.real_tokens, self.processed_tokens)


def same_definitions(results: Mapping[str, Mapping[str, Any]]) -> int:
    """The version under which all of `results` (by name) were measured. Every comparison calls this first.

    Raises:
        DataError: they were measured under different definitions, or one does not say under which.
    """
    versions = {name: result.get("definitions") for name, result in results.items()}
    assert versions, "nothing to compare"
    missing = [name for name, version in versions.items() if not isinstance(version, int)]
    if missing:
        raise DataError(
            f"{', '.join(missing)}: says not under which definitions its figures were measured (`definitions` is missing),"
            " so it cannot be compared. Measure it again with this version."
        )
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{name}: {version}" for name, version in versions.items())
        raise DataError(
            f"These figures were measured under different definitions ({listed}), and a comparison of them would mean"
            " nothing. Measure all of them again with one version."
        )
    return int(next(iter(versions.values())))  # type: ignore[arg-type]
