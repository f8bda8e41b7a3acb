"""Sums over steps and the figures that follow from them: one code for a row of metrics and for the whole run."""

from dataclasses import dataclass
from typing import Any

from dynotune.measure.flops import StepFlops
from dynotune.measure.words import DEFINITIONS, Counts, fill, pad_tokens, per_second, saved_share, utilisation


@dataclass(slots=True)
class Totals:
    """Sums over steps that reached the weights, and the wall time of *all* steps: a skipped step costs time all the same.

    A checkpoint keeps them, so a figure of the whole run is sum over sum, whatever the step number it was resumed at.
    """

    definitions: int = DEFINITIONS
    steps: int = 0
    seconds: float = 0.0
    examples: int = 0
    pairs: int = 0
    documents: int = 0
    real_tokens: int = 0
    label_tokens: int = 0
    processed_tokens: int = 0
    empty_tokens: int = 0
    lost_tokens: int = 0
    """Processed tokens of steps that did not reach the weights."""

    sequence_tokens: int = 0
    model_flops: int = 0
    hardware_flops: int = 0
    available_flops: float = 0.0
    """What the devices could have done in the time; zero while their peak or the model's FLOPs are not known."""

    def add_step(self, counts: Counts, flops: StepFlops | None = None, steps: int = 1) -> None:
        """flops: of this step; None where they are added together with others'. steps: that `counts` are of."""
        self.steps += steps
        self.examples += counts.examples
        self.pairs += counts.pairs
        self.documents += counts.documents
        self.real_tokens += counts.real_tokens
        self.label_tokens += counts.label_tokens
        self.processed_tokens += counts.processed_tokens
        self.empty_tokens += counts.empty_tokens
        self.sequence_tokens += counts.sequence_tokens
        if flops is not None:
            self.add_flops(flops)

    def add_flops(self, flops: StepFlops) -> None:
        """Of steps that reached the weights."""
        self.model_flops += flops.model_flops
        self.hardware_flops += flops.hardware_flops

    def add_lost(self, counts: Counts) -> None:
        """A step that did not reach the weights."""
        self.lost_tokens += counts.processed_tokens

    def add_time(self, seconds: float, available_flops: float) -> None:
        self.seconds += seconds
        self.available_flops += available_flops

    def add(self, other: "Totals") -> None:
        """Take in another window."""
        assert self.definitions == other.definitions
        # Written out, since it is done several times a row: by name it takes three times as long.
        self.steps += other.steps
        self.seconds += other.seconds
        self.examples += other.examples
        self.pairs += other.pairs
        self.documents += other.documents
        self.real_tokens += other.real_tokens
        self.label_tokens += other.label_tokens
        self.processed_tokens += other.processed_tokens
        self.empty_tokens += other.empty_tokens
        self.lost_tokens += other.lost_tokens
        self.sequence_tokens += other.sequence_tokens
        self.model_flops += other.model_flops
        self.hardware_flops += other.hardware_flops
        self.available_flops += other.available_flops

    def figures(self) -> dict[str, Any]:
        """Rates over the whole wall time, fill, what sharing saves, and MFU and HFU where the peak is known."""
        found: dict[str, Any] = {
            "tokens_per_second": per_second(self.real_tokens, self.seconds),
            "label_tokens_per_second": per_second(self.label_tokens, self.seconds),
            "processed_tokens_per_second": per_second(self.processed_tokens, self.seconds),
            "fill": fill(self.real_tokens, self.processed_tokens),
        }
        if self.processed_tokens:
            found["wasted/padding"] = pad_tokens(self.real_tokens, self.processed_tokens) - self.empty_tokens
            found["wasted/empty"] = self.empty_tokens
        found |= {"wasted/lost": self.lost_tokens} if self.lost_tokens else {}
        if self.pairs:
            found["pairs_per_second"] = per_second(self.pairs, self.seconds)
        if self.pairs and (saved := saved_share(self.real_tokens, self.sequence_tokens)) is not None:
            found["share_of_tokens_saved"] = saved
        mfu, hfu = (utilisation(n, self.available_flops) for n in (self.model_flops, self.hardware_flops))
        return found if mfu is None else found | {"mfu": mfu, "hfu": hfu}
