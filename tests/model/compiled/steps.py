"""Micro-batches of random documents through a model's decoder, forward and backward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from dynotune.model.attention import hidden_states, packed_attention
from dynotune.model.compiled import Regions, compile_layers, decoder_layers
from dynotune.model.families import FamilyBatch, pack_families
from dynotune.model.packed import PackedBatch, pack
from tests.model.lora.adapted import fill
from tests.tiny import tiny_model

CPU = torch.device("cpu")
COMPILER = "aot_eager"
"""Everything but the generation of kernels: dynamo's graphs and guards, forward and backward by autograd's tracer."""


def model_of(kind: str, adapter: bool = False, dropout: float = 0.0, **changes: Any) -> Any:
    """A tiny model in training mode, `adapter` with a LoRA whose B is not zero."""
    model: Any = tiny_model(kind, **{"num_hidden_layers": 3, "attn_implementation": "eager", **changes})
    if adapter:
        settings = LoraConfig(r=5, lora_alpha=16, lora_dropout=dropout, target_modules="all-linear")
        model = get_peft_model(model, settings)
        fill(model)
    return model.train()


def batch_of(lengths: Sequence[int], tokens: int, seed: int = 0) -> PackedBatch:
    """Documents of these lengths and random tokens."""
    draws = np.random.default_rng([seed, *lengths])
    documents = [(ids := draws.integers(2, 340, n, dtype=np.int32), ids) for n in lengths]
    return pack(documents, tokens, CPU)


def families_of(lengths: Sequence[int], tokens: int, seed: int = 0) -> FamilyBatch:
    """Families of two documents with a common beginning, or one, that fill about as many tokens."""
    draws, families = np.random.default_rng([seed, *lengths]), []
    for n in lengths:
        trunk, branch = draws.integers(2, 340, n // (8 if seed % 2 else 2), dtype=np.int32), n // 4
        both = [np.concatenate([trunk, np.full(max(1, branch), 340 + i, np.int32)]) for i in range(2 if n > 3 else 1)]
        families.append([(ids, ids) for ids in both])
    return pack_families(families, tokens, CPU)


def lengths_within(tokens: int, seed: int) -> list[int]:
    """Lengths of random documents that fill at most `tokens`, sometimes one, sometimes many."""
    draws = np.random.default_rng(seed)
    left, lengths = tokens, []
    while left > 0 and (n := int(draws.integers(1, tokens))) <= left and draws.random() < 0.9:
        lengths.append(n)
        left -= n
    return lengths or [tokens]


def gradients(model: Any, batch: PackedBatch | FamilyBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states [T, D] of the documents' tokens, and gradients of a sum that weighs them at random."""
    model.zero_grad()
    hidden_TD = hidden_states(model, batch)
    documents = batch.documents if isinstance(batch, PackedBatch) else batch.sequences
    real = int(sum(batch.lengths[:documents]))
    weights = torch.randn(hidden_TD.shape, generator=torch.Generator().manual_seed(1))
    (hidden_TD * weights)[:real].sum().backward()  # type: ignore[no-untyped-call]
    return hidden_TD.detach()[:real].clone(), {
        n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
    }


@contextmanager
def compiled(model: Any, compiler: str = COMPILER) -> Iterator[Regions]:
    """Packed attention and compiled layers inside."""
    torch._dynamo.reset()
    regions = compile_layers(decoder_layers(model), compiler)
    try:
        with packed_attention(model):
            yield regions
    finally:
        regions.uninstall()
        torch._dynamo.reset()
