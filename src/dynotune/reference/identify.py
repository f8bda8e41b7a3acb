"""The key of a model that is loaded, as it is before its first update."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.model.base import base_of
from dynotune.reference.adapter_start import start_changes_base, trained_under_adapter
from dynotune.reference.key import Key
from dynotune.reference.tensors import tensors_digest
from dynotune.reference.weights import config_digest, files_digest

_NO_ARITHMETIC = frozenset({"base_model_name_or_path", "inference_mode", "lora_dropout", "peft_version", "revision"})
"""Of an adapter's configuration."""


def key_of(
    model: nn.Module,
    files: Sequence[Path] = (),
    *,
    computed_in: torch.dtype | None = None,
    keep_adapter: bool = False,
    tails: bool = False,
    memory: Path | None = None,
) -> Key:
    """The key of `model`, PEFT-wrapped or not, as its own reference.

    files: the safetensors files that all of its weights were read from (`weight_files.weight_paths`, and those of an adapter
    that is kept). Without any, as where it was passed in memory, begins at random or got new embedding rows after loading,
    its tensors are read, which takes seconds. computed_in: autocast's precision; None without. keep_adapter: an adapter
    whose training goes on is a part of the reference. memory: see `files_digest`.

    An adapter that is switched off in the reference is no part of the key, and its random start then no part either: under
    PEFT what is frozen counts, and what is trained under the adapter. One whose start was taken out of the weights under it
    (`start_changes_base`) is a part in any case, and the model's tensors are then read even where `files` are given: no file
    holds these weights.

    Raises `OSError` where a file cannot be read.
    """
    if start_changes_base(model):
        files, keep_adapter = (), True
    counts_all = keep_adapter or not hasattr(model, "peft_config")
    under = set(trained_under_adapter(model))
    counted = {name: p for name, p in model.named_parameters() if counts_all or not p.requires_grad or name in under}
    in_memory = () if files else [*counted.items(), *base_of(model).named_buffers(), *_beside(model)]
    config: dict[str, Any] = base_of(model).config.to_dict()
    if keep_adapter:  # its alpha and its kind are in no tensor
        adapters: Any = getattr(model, "peft_config", {})
        told = {name: adapter.to_dict() for name, adapter in adapters.items()}
        config = {**config, "adapters": {name: _without(adapter, _NO_ARITHMETIC) for name, adapter in told.items()}}
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in counted.values()})
    how = "as stored" if computed_in is None else f"in {str(computed_in).removeprefix('torch.')}"
    quantised = config.get("quantization_config") or {}
    return Key(
        weights=files_digest(files, memory) if files else tensors_digest(in_memory),
        config=config_digest(config),
        precision=f"{' and '.join(kinds)} weights, computed {how}",
        quantisation=str(quantised.get("quant_method", "")),
        tails=tails,
    )


def _beside(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that a model saves beside its parameters and buffers: the scales of weights that are quantised."""
    known = {name for name, _ in (*model.named_parameters(remove_duplicate=False), *model.named_buffers())}
    saved = model.state_dict(keep_vars=True)
    yield from ((name, value) for name, value in saved.items() if name not in known and isinstance(value, Tensor))


def _without(settings: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
