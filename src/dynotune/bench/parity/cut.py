"""A large model's first layers: a step of them shows the same mistakes, in seconds and in float32 on one device.

The cut model is a folder like any other, so that an arm loads it by its own ways and with all their checks.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.model.load import read_model_config
from dynotune.model.precision import Precision
from dynotune.model.skeleton import skeleton
from dynotune.model.weight_files import weight_paths

LARGE = 1_000_000_000
"""Parameters beyond which a model is cut."""

LAYERS = 2
MOST_LAYERS = 8
"""Where layers are of several kinds, as many from the first on as it takes to have each kind once, and no more than this."""

OF_MODEL = ("model_name_or_path", "model_init_kwargs", "tokenizer_name_or_path")
"""Keys that name a cut model."""

NUMBERED = re.compile(r"^(.*?\.)?([A-Za-z_]+)\.(\d+)\.")


def cut(config: WholeConfig, folder: Path, say: Callable[[str], None], large: int = LARGE) -> WholeConfig:
    """`config` with the first layers of its model, written to `folder`, where the model is large; else as it is.

    Raises `ModelError` where the model's files cannot be read.
    """
    import torch

    architecture: Any = read_model_config(config, dict(config.model_init_kwargs))
    text = architecture.get_text_config()
    layers = getattr(text, "num_hidden_layers", None)
    size = sum(p.numel() for p in skeleton(config, Precision(torch.float32, False)).parameters())
    if size < large or not isinstance(layers, int):
        return config
    first = layers_to_keep(getattr(text, "layer_types", None) or [""] * layers)
    if why := why_whole(config):
        say(f"note: parity is checked on the whole model: {why}")
        return config
    if first >= layers:
        return config
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == layers:
            setattr(text, name, value[:first])
    text.num_hidden_layers = first
    architecture.save_pretrained(folder)
    if not config.random_weights:
        write_weights(weight_paths(str(config.model_name_or_path), config.model_revision, {}), layers, first, folder)
    say(f"parity is checked on the first {first} of {layers} layers ({size / 1e9:.1f} B parameters in all)")
    return config.replace(
        model_name_or_path=str(folder),
        model_init_kwargs={},
        tokenizer_name_or_path=config.tokenizer_name_or_path or config.model_name_or_path,
    )


def why_whole(config: WholeConfig) -> str:
    """Why a model is not cut; empty where it may be."""
    if config.trust_remote_code:
        return "its code is its own (`trust_remote_code`)"
    if config.model_init_kwargs and not config.random_weights:
        return "`model_init_kwargs` say how it is loaded"
    if str(config.lora_target_modules or "").count("layers") or config.lora_target_parameters:
        return "the adapter names its layers"
    return ""


def layers_to_keep(kinds: Iterable[str]) -> int:
    """How many from the first on hold each of these kinds, within the bounds."""
    kinds = list(kinds)
    every = max((kinds.index(kind) + 1 for kind in set(kinds)), default=0)
    return max(LAYERS, every if every <= MOST_LAYERS else LAYERS)


def write_weights(paths: Iterable[Path], layers: int, first: int, folder: Path) -> None:
    """`model.safetensors` of the tensors of the first layers and of all that belongs to none."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    opened: dict[Path, Any] = {path: safe_open(path, framework="pt") for path in paths}
    names = {name: path for path, file in opened.items() for name in file.keys()}  # noqa: SIM118  (no mapping)
    kept = set(kept_names(names, layers, first))
    tensors = {name: opened[path].get_tensor(name) for name, path in names.items() if name in kept}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def kept_names(names: Iterable[str], layers: int, first: int) -> list[str]:
    """Those outside of layers `first` and following. Of several stacks of modules only those that have `layers` are cut: a
    tower for pictures keeps its own."""
    names = list(names)
    stacks: dict[str, set[int]] = {}
    places: dict[str, tuple[str, int]] = {}
    for name in names:
        if found := NUMBERED.match(name):
            places[name] = f"{found[1] or ''}{found[2]}", int(found[3])
            stacks.setdefault(places[name][0], set()).add(int(found[3]))
    whole = {stack for stack, numbers in stacks.items() if numbers == set(range(layers))}
    return [name for name in names if name not in places or places[name][0] not in whole or places[name][1] < first]
