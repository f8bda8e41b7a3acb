"""Models and adapters on disk: written so that others load them, read back so that training goes on with them."""

import shutil
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dynotune.errors import TrainingError
from dynotune.model.failures import LoadReport, words_of
from dynotune.model.weight_files import require_safetensors
from dynotune.printable import printable
from dynotune.train.checkpoints.snapshot import saved_shell
from dynotune.train.checkpoints.whole_folders import put_in_place

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TRAINABLE = "trainable.safetensors"


def model_folder(is_adapter: bool) -> str:
    """The name under which a model or adapter lies in a run folder or checkpoint."""
    return "adapter" if is_adapter else "model"


def save_model(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write model or adapter with its tokenizer so that transformers or PEFT load the folder as it is."""
    half = folder.with_name(f".{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    try:
        write_model(saved_shell(model), tokenizer, half, dict(model.state_dict()))
        put_in_place(half, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise TrainingError(f"{folder} could not be written: {error}. Make room on the disk.") from error


def write_model(model: Any, tokenizer: "PreTrainedTokenizerBase", folder: Path, weights: dict[str, Tensor]) -> None:
    """The files of model or adapter and tokenizer. `model` is a shell (`saved_shell`): `weights` are what is written."""
    model.save_pretrained(folder, state_dict=dict(weights))
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:
        if type(error) is not Exception:
            raise
        # What the tokenizers' Rust raises where a file cannot be written has no class of its own.
        raise OSError(str(error)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path} cannot be read: {words_of(error)}. Name an older checkpoint.") from error


def _widest(tensors: Iterable[Tensor]) -> torch.dtype:
    """The type that holds every value of `tensors`: a model may keep parts of itself in float32."""
    kinds = {t.dtype for t in tensors if t.is_floating_point() and t.element_size() > 1}
    return reduce(torch.promote_types, kinds)


def load_weights(model: "PreTrainedModel", checkpoint: Path) -> int:
    """Load a checkpoint's trained weights into the live model; returns how many tensors that were."""
    if hasattr(model, "peft_config"):
        saved = load_tensors(checkpoint / TRAINABLE)
        live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        wrong = [
            n for n in saved.keys() | live.keys() if n not in saved or n not in live or saved[n].shape != live[n].shape
        ]
        if wrong:
            raise TrainingError(
                f"{checkpoint} was trained with another adapter: {len(wrong)} trained weights differ in name or shape"
                f" ({sorted(wrong)[0]}). Resume with the adapter settings of that run."
            )
        with torch.no_grad():
            for name, p in live.items():
                p.copy_(saved[name])
        return len(live)
    # Through from_pretrained, because the names in the file may differ from the module's (fused experts, tied heads).
    dtype = _widest(model.state_dict().values())
    try:
        require_safetensors(str(checkpoint / "model"), "main", {})
        with LoadReport():
            loaded: Any = type(model).from_pretrained(
                checkpoint / "model", dtype=dtype, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"{checkpoint / 'model'} cannot be loaded: {words_of(error)} Name another checkpoint."
        ) from error
    saved_model, info = loaded
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        raise TrainingError(
            f"{checkpoint / 'model'} lacks {len(missing)} weights ({printable(missing[0])}). Name another checkpoint."
        )
    weights = saved_model.state_dict()
    model.load_state_dict(weights)
    return len(weights)
