"""Safetensors only: the files that a loader would read are named before it reads any of them.

transformers opens whatever an index or `config.json` names and unpickles what does not end in `.safetensors`; PEFT falls
back to `adapter_model.bin`. Neither can be told not to.
"""

import json
from pathlib import Path
from typing import Any

from dynotune.errors import ModelError
from dynotune.printable import printable

INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
_HUB_ARGUMENTS = ("cache_dir", "proxies", "token", "local_files_only", "subfolder")


def require_safetensors(name: str, revision: str, arguments: dict[str, Any]) -> None:
    """Look at the index and configuration of a model (a folder or hub id) that `from_pretrained` would follow.

    `arguments` are those given to `from_pretrained`. Raises `ModelError` for a name that is not a `.safetensors` file
    inside the model's own folder, and for a part that a download has left out. What is not there at all, or cannot be
    fetched, is the loader's to say.
    """
    settings = _json(fetched(name, "config.json", revision, arguments))
    explicit = arguments.get("transformers_weights") or (settings or {}).get("transformers_weights")
    index = _with_variant(arguments.get("variant")) if explicit is None else str(explicit)
    if not index.endswith(".json"):
        _require_inside(name, "config.json", index)
        return
    _require_inside(name, "config.json", index, suffix=".json")
    content = _json(fetched(name, index, revision, arguments))
    if content is None:
        return
    parts = content.get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise ModelError(f"`{printable(name)}`: {index} holds no `weight_map`. Download the file again.")
    for part in sorted({str(part) for part in parts.values()}):
        _require_inside(name, index, part)
        folder = Path(name, arguments.get("subfolder") or "")
        if folder.is_dir() and not (folder / part).is_file():
            raise ModelError(
                f"`{printable(name)}` lacks {printable(part)}, which its {index} names: an interrupted download."
                " Download the model again."
            )


def weight_paths(name: str, revision: str, arguments: dict[str, Any]) -> list[Path]:
    """The safetensors files of a model (a folder or hub id) that `from_pretrained` reads, in the order of their names.

    `arguments` are those given to `from_pretrained`. Empty where it has none of its own, as where a `config.json` was named.
    Raises `ModelError` where its index names a file that is not here: of a model that was loaded, none is.
    """
    settings = _json(fetched(name, "config.json", revision, arguments)) or {}
    variant = arguments.get("variant")
    explicit = arguments.get("transformers_weights") or settings.get("transformers_weights")
    single = str(explicit) if explicit else f"model.{variant}.safetensors" if variant else "model.safetensors"
    if not single.endswith(".json"):
        found = fetched(name, single, revision, arguments)
        if found is not None:
            return [found]
    index = single if single.endswith(".json") else _with_variant(variant)
    content = _json(fetched(name, index, revision, arguments)) or {}
    paths = []
    for part in sorted({str(part) for part in content.get("weight_map", {}).values()}):
        found = fetched(name, part, revision, arguments)
        if found is None:
            raise ModelError(
                f"`{printable(name)}` lacks {printable(part)}, which its {index} names. Download it again."
            )
        paths.append(found)
    return paths


def stands_here(path: Path) -> bool:
    """Whether a file or folder is there; False too for a name (a hub id, a typing error) that none can have."""
    try:
        return path.exists()
    except OSError:
        return False


def is_adapter(name: str, revision: str, arguments: dict[str, Any]) -> bool:
    """Whether a folder or hub id holds an adapter: `from_pretrained` would fetch its base, and a pickled adapter too."""
    return fetched(name, "adapter_config.json", revision, arguments) is not None


def adapter_weights(folder: Path) -> Path:
    """The only file of an adapter that is read for its weights. Raises `ModelError` where it is missing."""
    if not (folder / ADAPTER).is_file():
        pickled = (folder / "adapter_model.bin").exists()
        remedy = (
            "Pickled weights (adapter_model.bin) are refused: a pickle can run any program. Load it where you trust it"
            " and save it again with PEFT, which writes safetensors."
            if pickled
            else "Download or copy the adapter again."
        )
        raise ModelError(f"{printable(str(folder))} has no {ADAPTER}. {remedy}")
    return folder / ADAPTER


def _with_variant(variant: str | None) -> str:
    stem = INDEX.removesuffix(".json")
    return f"{stem}.{variant}.json" if variant else INDEX


def _require_inside(name: str, where: str, file: str, suffix: str = ".safetensors") -> None:
    path = Path(file)
    if path.is_absolute() or ".." in path.parts or not file.endswith(suffix):
        raise ModelError(
            f"`{printable(name)}`: its {where} names {printable(file)} as a file of weights. Only `*{suffix}` files inside"
            " the model's folder are read: a pickle can run any program. Convert the weights to safetensors, or take the"
            " model from a source that you trust."
        )


def fetched(name: str, file: str, revision: str, arguments: dict[str, Any]) -> Path | None:
    """`file` of a folder or hub id, where there is one."""
    from transformers.utils.hub import cached_file

    if Path(name).is_file():  # a `config.json` that was named itself: a folder or hub id would be asked for files
        return None
    found = cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **{key: arguments[key] for key in _HUB_ARGUMENTS if key in arguments},
    )
    return None if found is None else Path(found)


def _json(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{printable(str(file))} is not JSON ({type(error).__name__}). Download the file again."
        ) from error
    if not isinstance(content, dict):
        raise ModelError(f"{printable(str(file))} is not a JSON object. Download the file again.")
    return content
