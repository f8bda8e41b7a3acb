"""An adapter that was saved: found, read and put onto its base, every weight of it or none."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.errors import ModelError
from dynotune.model.failures import loading_failures, words_of
from dynotune.model.weight_files import adapter_weights, stands_here
from dynotune.printable import printable

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """Where an adapter lies and which base it names."""

    path: Path
    base: str | None
    revision: str | None


def find_adapter(run: Path) -> AdapterFolder:
    """The adapter inside a run folder or checkpoint, or in `run` itself.

    Raises:
        ModelError: there is none, and what `run` is instead; it is broken; or its weights are pickled.
    """
    shown = printable(str(run), 200)
    if not (stands_here(run) and run.is_dir()):
        raise ModelError(f"{shown} is not a folder. Give a run folder, one of its checkpoints, or an adapter folder.")
    for folder in (run, run / "adapter"):
        if (folder / "adapter_config.json").is_file():
            return _read(folder)
    for folder in (run / "model", run):
        if (folder / "config.json").is_file():
            raise ModelError(
                f"{shown} was fine-tuned in full: {printable(str(folder))} is the whole model and loads as it is."
                " Nothing to merge."
            )
    steps = [p for p in run.glob("checkpoints/step-*/adapter") if p.parent.name.removeprefix("step-").isdecimal()]
    if steps:
        newest = max(steps, key=lambda p: int(p.parent.name.removeprefix("step-")))
        raise ModelError(
            f"{shown} has no final adapter: the run did not end. Its newest checkpoint can be merged: "
            f"`dynotune merge {printable(str(newest.parent))} --output ...`"
        )
    raise ModelError(f"{shown} holds no adapter (no adapter_config.json there or in {shown}/adapter).")


def _read(folder: Path) -> AdapterFolder:
    adapter_weights(folder)
    file = folder / "adapter_config.json"
    shown = printable(str(file))
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{shown} cannot be read as JSON ({words_of(error)}). Copy the adapter again.") from error
    if not isinstance(settings, dict):
        raise ModelError(f"{shown} is not a JSON object. Copy the adapter again.")
    for key in ("base_model_name_or_path", "revision"):
        if not isinstance(settings.get(key), str | None):
            raise ModelError(f"{shown}: `{key}` is not a text. Correct it, or give the base model by `--base`.")
    return AdapterFolder(folder, settings.get("base_model_name_or_path") or None, settings.get("revision") or None)


def put_on_base(model: "PreTrainedModel", adapter: Path) -> "PeftModel":
    """The base with the adapter, for inference.

    Raises:
        ModelError: the adapter is broken, does not fit, or its file lacks a weight or has one without a place.
    """
    from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    shown, base = printable(str(adapter)), printable(str(model.name_or_path))
    file = adapter_weights(adapter)
    try:
        weights = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{printable(str(file))} is not whole ({words_of(error)}): an interrupted download or copy. Copy it again."
        ) from error
    try:
        with warnings.catch_warnings():
            # It would print the names as they are; what is missing is an error below.
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            # As in `add_adapter`: an attribute that transformers is renaming, and nothing that a user could mend.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            peft_model = PeftModel.from_pretrained(model, str(adapter))
        # Once more, because PEFT's own loading tells nobody what had no place.
        found: Any = set_peft_model_state_dict(peft_model, weights)
    except loading_failures() as error:
        raise ModelError(f"The adapter in {shown} does not load on {base}: {words_of(error)}") from error
    missing = _missing(peft_model, found.missing_keys)
    unexpected = found.unexpected_keys
    if unexpected:  # beside a resized embedding PEFT writes a trained head twice, and reads it once
        unexpected = sorted(set(unexpected) - set(get_peft_model_state_dict(peft_model, save_embedding_layers=True)))
    for names, what in (
        (missing, "lacks {} weights that its configuration promises"),
        (unexpected, "holds {} weights that the base has no place for"),
    ):
        if names:
            first = ", ".join(printable(name.replace(".default", "")) for name in sorted(names)[:3])
            raise ModelError(
                f"The adapter in {shown} {what.format(len(names))} ({first}{', ...' if len(names) > 3 else ''}). It is"
                f" incomplete, or belongs to another base than {base}: copy it again, or give its base by `--base`."
            )
    peft_model.eval()
    return peft_model


def _missing(model: "PeftModel", names: list[str]) -> list[str]:
    """Those of the weights without a value that are the adapter's own, and not another name of one that has a value."""
    state = model.state_dict()
    without = set(names)
    given = {tensor.data_ptr() for name, tensor in state.items() if name not in without}
    own = model.active_adapter
    return [name for name in names if own in name.split(".") and state[name].data_ptr() not in given]
