"""Strict model FLOPs and hardware FLOPs of a step, from the lengths of its documents.

Model FLOPs are what the mathematics needs: each matrix product with real tokens, 2 FLOPs a weight forward, 2 for the
gradient of the input, 2 for the gradient of the weight where it is trained (so 6 a trained weight, 4 a frozen one under
LoRA, 6 an adapter's), the LM head where logits are computed, attention per document, forward once and backward twice. The
embedding is a look-up. By the convention the input's gradient is counted in the first layer too, although nothing may need
it; layers below the first one that trains anything run forward only. Padding and recomputation (of checkpointed layers, and
of attention's scores in flash kernels) are in the hardware FLOPs alone.

Not counted, as in every published figure: norms, activations, softmax, rotary positions, the loss, the optimizer, and what
an adapter's method does to its weights once a step (DoRA's norms).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dynotune.measure.products import Product, base_of, decoder_and_layers, products_of
from dynotune.measure.reach import Reach, head_sizes, reaches_of
from dynotune.measure.recompute import recomputed_weights
from dynotune.measure.words import real_tokens
from dynotune.plan.plan import Step
from dynotune.plan.spread import Cost

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(slots=True)
class StepFlops:
    """FLOPs of one step or several, all ranks together. Not frozen: one is made for each window of steps."""

    model_flops: int
    hardware_flops: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Layers of one reach. FLOPs for each of `Reach.twice_pairs`."""

    reach: Reach
    model: int
    hardware: int


@dataclass(frozen=True, slots=True)
class Flops:
    """What a token, a row of logits and a pair of tokens cost in this model. Built once, after the model is prepared."""

    per_token: int
    """In all products but the head's, forward and backward."""

    recomputed_per_token: int
    """Of them done a second time by activation checkpointing."""

    per_logit_row: int
    """In the LM head, for each token whose logits are computed."""

    attention: tuple[Attention, ...]

    @classmethod
    def of(cls, model: "PreTrainedModel") -> "Flops":
        """Read off the live model, adapters and checkpointing in place.

        Raises:
            CannotCountError: a part of the model is not understood; the reason says which.
        """
        base = base_of(model)
        config, products = base.config.get_text_config(), products_of(model)
        decoder, layers = decoder_and_layers(base)
        first = _first_trained_layer(base.get_input_embeddings(), layers)
        trains_body = any(p.requires_grad for p in decoder.parameters())
        per_token = sum(_cost(p, trains_body) for p in products.around)
        recomputed = 0
        attention: Counter[tuple[Reach, int, int]] = Counter()
        # Flash kernels, and PyTorch's on the CPU, keep no scores: the backward computes query times key again.
        scores_again = int(getattr(base.config, "_attn_implementation", None) != "eager")
        for i, (layer, own, reach) in enumerate(zip(layers, products.layers, reaches_of(config), strict=True)):
            backward = i >= first
            per_token += sum(_cost(p, backward) for p in own)
            again = recomputed_weights(layer, own) if backward else None
            recomputed += 2 * (again or 0)
            queries, values = head_sizes(config, layer)
            forward = queries + values  # a pair costs 2 FLOPs a feature in each of two products; these count half pairs
            model_flops = forward * (3 if backward else 1)
            extra = (queries * scores_again if backward else 0) + (forward if again is not None else 0)
            attention[(reach, model_flops, model_flops + extra)] += 1
        return cls(
            per_token=per_token,
            recomputed_per_token=recomputed,
            per_logit_row=sum(_cost(p, trains_body) for p in products.head),
            attention=tuple(Attention(reach, n * m, n * h) for (reach, m, h), n in attention.items()),
        )

    def document_cost(self, tokens: int, logit_rows: float) -> Cost:
        """What documents cost beside each other: exact for one of `tokens` tokens, the longest say, near it for others.

        logit_rows: the share of tokens whose logits are computed.
        """
        per_token = self.per_token + round(self.per_logit_row * logit_rows)
        one = np.array([tokens])
        return Cost.of_flops(
            per_token, sum(kind.model * kind.reach.twice_pairs(one) for kind in self.attention), tokens
        )

    def of_step(self, step: Step, labelled_rows_head: bool) -> StepFlops:
        """FLOPs of a whole step. labelled_rows_head: see `of_steps`."""
        return self.of_steps((step,), labelled_rows_head)

    def of_steps(self, steps: Sequence[Step], labelled_rows_head: bool) -> StepFlops:
        """FLOPs of whole steps together: a row of metrics needs no others, and the arrays of ten take as long as those of
        one.

        Args:
            labelled_rows_head: logits are computed for label tokens only; otherwise for every token (the plain path).
        """
        real = labels = processed = 0
        once: list[NDArray[np.int64]] = []
        again: list[NDArray[np.int64]] = []
        pads: list[int] = []
        for step in steps:
            of_step, tokens = real_tokens(step), step.processed_tokens
            real, labels, processed = real + of_step, labels + step.label_tokens, processed + tokens
            if step.attention is None:
                once.append(step.lengths)
            else:
                once.append(step.attention[0])
                again.append(step.attention[1])
            if tokens > of_step:
                pads += pads_of(step)
        head = self.per_logit_row * (labels if labelled_rows_head else real)
        model_flops = self.per_token * real + head
        hardware = (self.per_token + self.recomputed_per_token) * processed + head
        for kind in self.attention if once else ():
            pairs = kind.reach.twice_pairs(_together(once))
            if again:
                pairs -= kind.reach.twice_pairs(_together(again))
            model_flops += kind.model * pairs
            hardware += kind.hardware * (pairs + kind.reach.twice_pairs(np.array(pads, np.int64)) if pads else pairs)
        if not labelled_rows_head:
            hardware += self.per_logit_row * (processed - real)
        return StepFlops(int(model_flops), int(hardware))


def pads_of(step: Step) -> list[int]:
    """Pad tokens at the end of each micro-batch of all ranks: one more document, for the hardware."""
    return [batch.tokens - batch.real_tokens for batch in step.all_micro_batches]


def _together(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _cost(product: Product, backward: bool) -> int:
    """FLOPs for each token that meets the weight: forward, gradient of the input, gradient of the weight."""
    return product.weights * (2 + 2 * backward + 2 * product.trained)


def _first_trained_layer(embedding: nn.Module, layers: nn.ModuleList) -> int:
    """The first layer that gradients reach; the number of layers where they reach none."""
    if any(p.requires_grad for p in embedding.parameters()):
        return 0
    trained = (i for i, layer in enumerate(layers) if any(p.requires_grad for p in layer.parameters()))
    return next(trained, len(layers))
