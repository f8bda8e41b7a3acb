"""Real steps of tiny models on the CPU, traced: as transformers takes them, and packed as we do."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.measure.evidence import Evidence
from dynotune.measure.traces.step import Tracer
from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.head import find_head
from tests.model.head.plain import batch_of, labelled, objective
from tests.tiny import tiny_model

CPU = torch.device("cpu")
LENGTHS = (24, 9, 15)
TOKENS, VOCABULARY = 48, 352
IDS = torch.arange(2, 2 + TOKENS)[None]
POSITIONS = torch.cat([torch.arange(n) for n in LENGTHS])[None]
"""Documents side by side, as transformers is told of them."""


def step_of(
    model: nn.Module,
    loss: Callable[[], Tensor],
    places: Iterable[str] = (),
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    micro_batches: int = 1,
    **facts: Any,
) -> Evidence:
    """A step of micro-batches, each with the same loss."""
    told = {"tokens": [TOKENS] * micro_batches, "vocabulary": VOCABULARY, "documents": len(LENGTHS), **facts}
    with Tracer(model, places, CPU).step(2, told) as marks:
        for i in range(micro_batches):
            with marks.forward(i), autocast():
                one = loss()
            with marks.backward(i):
                one.backward()
    assert marks.evidence is not None
    return marks.evidence


def transformers_step(positions: Tensor | None = POSITIONS, attention: str = "sdpa", **step: Any) -> Evidence:
    """All tokens labelled, full logits."""
    model: Any = tiny_model("llama", attn_implementation=attention).train()
    more = {} if positions is None else {"position_ids": positions}
    return step_of(model, lambda: model(input_ids=IDS, labels=IDS, use_cache=False, **more).loss, **step)


def packed_step(share: float = 1.0, whole_logits: bool = False, **step: Any) -> Evidence:
    """Our packed attention and, unless told otherwise, our head."""
    model: Any = tiny_model("llama").train()
    batch, objective_ = batch_of(labelled(LENGTHS, VOCABULARY, share), TOKENS), objective()
    head = find_head(model, torch.arange(1, 9)).head
    assert head is not None
    with packed_attention(model):

        def loss() -> Tensor:
            hidden_TD = hidden_states(model, batch)
            return (
                head.few_logits(hidden_TD).logsumexp(-1).sum()
                if whole_logits
                else head(hidden_TD, batch, objective_)[0]
            )

        return step_of(model, loss, **step)
