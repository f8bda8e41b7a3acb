"""How many tokens of a model keep a GPU busy while the host launches the next layer.

A layer takes the host as long for a hundred tokens as for a hundred thousand, so what decides is the work of a layer: 4,096
tokens of a 7B under LoRA take the device longer than its launches take the host, 8,192 of 23 million parameters a sixth of
that time. Above that, a larger micro-batch is hardly faster, and a replay of graphs not at all.
"""

from typing import TYPE_CHECKING, Any

from dynotune.measure.flops import Flops
from dynotune.measure.products import CannotCountError, base_of, decoder_and_layers
from dynotune.plan.ladder import round_down
from dynotune.plan.summary import DEFAULT_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LAYER = 3.9e12
"""FLOPs of a layer, forward and backward, behind which the host's launches of one are hidden: 4,096 tokens of a 7B under
LoRA. On an H200 that is 5 ms; launching took 2.4 to 5 ms of four hosts (LOG.md, 2026-11-23 and 2026-11-27)."""

LARGEST = 131_072
"""Tokens of the largest micro-batch that is made unasked: of more nothing is left to gain, whatever the model."""

UNKNOWN = 4096
"""`busy_tokens` of a model whose work cannot be counted."""


def busy_tokens(model: "PreTrainedModel") -> int:
    """Tokens of a micro-batch from which on launches are hidden, a rung; of the live model or a skeleton, adapters in place.

    What layers without gradients do counts as well, so that it is an average layer's.
    """
    try:
        flops = Flops.of(model)
        _, layers = decoder_and_layers(base_of(model))
    except CannotCountError:
        return UNKNOWN
    a_layer = flops.per_token / len(layers)
    return round_down(min(LARGEST, int(LAYER / max(a_layer, 1.0))))


def useful_tokens(model: Any) -> int:
    """Tokens beyond which no micro-batch is made unasked: a rung, 16,384 or more."""
    return max(DEFAULT_TOKENS, busy_tokens(model))
