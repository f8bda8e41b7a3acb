"""Whether a model can be executed packed: by its structure, then by trying it out.

A few tiny documents run packed and alone, on the model itself, its device and its precision. Packed execution is taken when
documents do not see each other and each comes out as it does alone, within what rounding explains.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dynotune.foreign import FOREIGN, first_line
from dynotune.model.attention.backends import DEFAULT, KERNELS
from dynotune.model.attention.call import BoundariesMissingError, Call
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.attention.install import stock_attention
from dynotune.model.attention.probe import (
    TOKENS,
    WINDOW,
    Document,
    Probe,
    errors_of_tokens,
    in_training,
    short_windows,
    untouched,
)
from dynotune.model.attention.structure import why_not_by_structure

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHANGED = (0, 2)
"""Documents that are changed to see whether others notice: each of the others has one on both sides or before it."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far apart two right results may lie, as relative L2 distance of a token's hidden state."""

    least: float
    """Always allowed."""

    most: float
    """Never more, however much the model itself scatters."""

    share: float = 1.0
    """The share of tokens that must keep it: a mixture of experts in 16 bits sends a token elsewhere on a near tie."""


EXACT = Rounding(1e-5, 1e-4)
TF32 = Rounding(2e-3, 3e-2)
BITS16 = Rounding(3e-2, 2e-1)
SCATTER = 5.0
"""Allowed in multiples of what the model itself scatters when the same document stands in a longer row."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The verdict, and what is to be said of it."""

    reason: str | None
    """Why the model cannot be packed; None where it can."""

    says: tuple[str, ...] = ()
    """Which backend runs, and why where it is not the fast one."""


class _CannotBePacked(Exception):  # noqa: N818  a verdict, caught below
    pass


def why_not_packed(
    model: "PreTrainedModel", *, longest: int, autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> str | None:
    """Why `model` cannot be executed packed, or None. `longest`: tokens of the longest document that will come."""
    return examine(model, longest=longest, autocast=autocast).reason


def why_not_shared(
    model: "PreTrainedModel", *, longest: int, autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> str | None:
    """Why documents that begin alike cannot be executed with their beginning once (`FamilyBatch`), or None.

    What cannot be packed cannot share. Arguments as of `why_not_packed`.
    """
    return examine(model, longest=longest, autocast=autocast, shared=True).reason


def examine(
    model: "PreTrainedModel",
    *,
    longest: int,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    backend: str = DEFAULT,
    shared: bool = False,
) -> Examination:
    """Structure first, then eight to fifteen forward passes of at most 64 tokens. `model` is left as it was.

    backend: of attention, as in `PackedAttention`; where that is installed, its own is examined. shared: with documents that
    begin alike, laid out with their beginning once.

    What fails on the plain path as well is raised, and so is what the device itself cannot do any more.
    """
    reason = why_not_by_structure(model, longest)
    if reason:
        return Examination(reason)
    device = next(model.parameters()).device
    probe = Probe(model, autocast, device, backend, shared)
    try:
        with untouched(model, device):
            calls = _try_out(probe)
    except _CannotBePacked as error:
        return Examination(str(error))
    return Examination(None, _says(calls))


def _try_out(probe: Probe) -> list[Call]:
    _refuse_noise(probe)
    documents, others = probe.documents(seed=0), probe.documents(seed=1)
    alone = [probe.stock(ids) for ids in documents]  # before anything is caught: the plain path must work
    rounding, scatter = _rounding(probe, alone[0]), _scatter(probe, documents[0], alone[0])
    calls: list[Call] = []
    together = _packed(probe, documents, calls)
    _refuse_calls(probe, calls)
    with in_training([call.module for call in calls]):
        _packed(probe, documents)  # attention that drops out in training says so here
    _same(together, alone, rounding, scatter, "alone on the plain path")
    changed = [others[i] if i in CHANGED else ids for i, ids in enumerate(documents)]
    _isolated(probe, together, _packed(probe, changed), scatter)
    if any(call.window is not None for call in calls):
        _windows(probe, documents, alone, rounding, scatter)
    return calls


def _packed(probe: Probe, documents: Sequence[Document], calls: list[Call] | None = None) -> list[Tensor]:
    """Foreign code that cannot take documents side by side fails in its own ways; only these count as that."""
    try:
        return probe.packed(documents, calls)
    except BoundariesMissingError as error:
        raise _CannotBePacked("its layers do not hand the boundaries of documents on to attention") from error
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except FOREIGN as error:
        raise _CannotBePacked(f"documents side by side fail in it: {first_line(error)}") from error


def _refuse_noise(probe: Probe) -> None:
    embedding: Any = probe.model.get_input_embeddings()
    ids_n = torch.from_numpy(probe.documents(seed=0)[0]).long().to(probe.device)
    with in_training([embedding]):
        if not torch.equal(embedding(ids_n[None]), embedding(ids_n[None])):
            raise _CannotBePacked(
                "noise is added to its embeddings in training (NEFTune), of a size that depends on the tokens of a forward"
                " pass"
            )


def _refuse_calls(probe: Probe, calls: list[Call]) -> None:
    if not calls:
        raise _CannotBePacked("its attention does not go through transformers' attention interface")
    config: Any = text_decoder(probe.model).config
    kinds = getattr(config, "layer_types", None) or ()
    if "sliding_attention" in kinds and not any(call.window for call in calls):
        raise _CannotBePacked("its layers with a sliding window do not hand the window to attention")
    # transformers 5.17 lets such a model run on `sdpa`, which leaves the soft-cap out without a word; 5.23 refuses.
    with stock_attention(probe.model):
        stock = config._attn_implementation
    if any(call.softcap is not None for call in calls) and stock == "sdpa":
        raise _CannotBePacked(
            "its attention scores are soft-capped, and `attn_implementation: sdpa`, which it runs on the plain path, leaves"
            " that out. Set `attn_implementation: eager`"
        )


def _rounding(probe: Probe, hidden_nD: Tensor) -> Rounding:
    """By the precision that matrix products are computed in."""
    device = probe.device.type
    dtype = hidden_nD.dtype
    with probe.autocast():
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
    if dtype in (torch.bfloat16, torch.float16):
        experts = _has_experts(probe)
        return Rounding(BITS16.least, BITS16.most, share=0.75) if experts else BITS16
    if dtype == torch.float32 and device == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return TF32
    return EXACT


def _scatter(probe: Probe, ids_n: Document, alone_nD: Tensor) -> float:
    """How much rounding alone moves a document: nothing behind it reaches it, but its row is longer."""
    longer = np.concatenate([ids_n, np.resize(ids_n, TOKENS - len(ids_n))])
    return float(errors_of_tokens(probe.stock(longer)[: len(ids_n)], alone_nD).max())


def _same(ours: list[Tensor], theirs: list[Tensor], rounding: Rounding, scatter: float, what: str) -> None:
    allowed = min(max(rounding.least, SCATTER * scatter), rounding.most)
    errors_T = torch.cat([errors_of_tokens(a, b) for a, b in zip(ours, theirs, strict=True)])
    if not errors_T.isfinite().all():
        raise _CannotBePacked("hidden states of random documents are not finite")
    error = float(errors_T.quantile(rounding.share))
    if error > allowed:
        raise _CannotBePacked(
            f"documents side by side do not come out as {what}: hidden states differ by {error:.1e} of their size, where"
            f" rounding explains {allowed:.1e}"
        )


def _isolated(probe: Probe, before: list[Tensor], after: list[Tensor], scatter: float) -> None:
    """Documents beside changed ones: equal in every bit, except where experts get other numbers of rows."""
    if any(torch.equal(before[i], after[i]) for i in CHANGED):
        raise _CannotBePacked("hidden states do not depend on the documents")
    allowed = max(1e-6, SCATTER * scatter) if _has_experts(probe) else 0.0
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        error = float(errors_of_tokens(b, a).max())
        if i not in CHANGED and (error > allowed or not np.isfinite(error)):
            raise _CannotBePacked(f"a document sees another one: its hidden states move by {error:.1e} of their size")


def _windows(probe: Probe, documents: list[Document], alone: list[Tensor], rounding: Rounding, scatter: float) -> None:
    """The same with windows that documents cross."""
    with short_windows(probe.model):
        short = [probe.stock(ids) for ids in documents]
        calls: list[Call] = []
        together = _packed(probe, documents, calls)
    taken = {call.window for call in calls} - {None}
    already = taken == {WINDOW} and torch.equal(short[0], alone[0])
    if taken != {WINDOW} or (torch.equal(short[0], alone[0]) and not already):
        raise _CannotBePacked("its sliding window cannot be shortened to compare it with the plain path's")
    _same(together, short, rounding, scatter, f"alone on the plain path with a window of {WINDOW} tokens")


def _has_experts(probe: Probe) -> bool:
    return any("expert" in name for name, _ in text_decoder(probe.model).named_modules())


def _says(calls: list[Call]) -> tuple[str, ...]:
    layers = {id(call.module): call for call in calls}  # some call attention twice
    fast = Counter(call.backend for call in layers.values() if not call.why_reference)
    slow = Counter(call.why_reference for call in layers.values() if call.why_reference)
    says = [f"attention: documents kept apart by {KERNELS[name].WORDS}, {n} layers" for name, n in fast.items()]
    for why, n in slow.items():
        says.append(f"attention: documents kept apart one after another (exact, slower), {n} layers: {why}")
    return tuple(says)
