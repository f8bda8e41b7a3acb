"""The inner decoder: everything of a causal language model up to its head.

Legend of shapes: T tokens of the micro-batch, D hidden.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from dynotune.model.attention.backends import DEFAULT, KERNELS
from dynotune.model.attention.segments import Segments, segments_of, segments_with_keys
from dynotune.model.base import base_of
from dynotune.model.families import FamilyBatch
from dynotune.model.packed import PackedBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEPT = "_dynotune_packed_attention"
"""Attribute of a decoder: the `PackedAttention` that is installed in it. A deep copy has its own."""


def text_decoder(model: "PreTrainedModel") -> nn.Module:
    """The module from token ids to hidden states, inside a PEFT wrapper and in a model that also takes images."""
    decoder = base_of(model).get_decoder()
    assert isinstance(decoder, nn.Module)
    return decoder


def hidden_states(model: "PreTrainedModel", batch: PackedBatch | FamilyBatch, **more: Any) -> Tensor:
    """What the head would get, [T, D], of every token of `batch`. Needs `packed_attention(model)`.

    A `FamilyBatch` needs a model of which `why_not_shared` says nothing.
    Adapters are modules inside of the decoder, so they run. The device is not waited for.
    """
    decoder = text_decoder(model)
    installed: Any = getattr(decoder, KEPT, None)
    backend = DEFAULT if installed is None else installed.backend
    segments = _segments(batch, fine=backend in KERNELS and KERNELS[backend].ANY_SIZES and not _is_compiled(decoder))
    if backend in KERNELS and (plan := KERNELS[backend].prepare(segments, decoder)) is not None:
        more["attention_plan"] = plan
    out: Any = decoder(
        input_ids=batch.ids_T[None],
        position_ids=batch.positions_T[None],
        use_cache=False,
        attention_backend=backend,
        **segments.keywords(),
        **more,
    )
    hidden_1TD: Tensor = out.last_hidden_state
    return hidden_1TD.squeeze(0)


def _is_compiled(decoder: nn.Module) -> bool:
    """Whether its layers are, or itself, so that each shape is compiled anew."""
    lists = [part for part in decoder.children() if isinstance(part, nn.ModuleList)]
    return any(one._compiled_call_impl is not None for one in (decoder, *(layer for part in lists for layer in part)))


def _segments(batch: PackedBatch | FamilyBatch, fine: bool) -> Segments:
    if isinstance(batch, PackedBatch):
        return segments_of(batch.boundaries_S1, batch.lengths, fine)
    return segments_with_keys(
        batch.boundaries_S1, batch.lengths, batch.key_rows_K, batch.key_boundaries_S1, batch.key_lengths
    )
