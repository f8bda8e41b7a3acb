"""Code that a model's files ask for, other than the Python files that `trust_remote_code` is about.

transformers takes `attn_implementation` from `config.json`, and one that names a repository of the hub makes it download
compiled kernels from there and run them.
"""

import json
from pathlib import Path
from typing import Any

from dynotune.errors import ModelError
from dynotune.model.weight_files import fetched
from dynotune.printable import printable

_KEYS = ("attn_implementation", "experts_implementation")


def refuse_kernels(name: str, revision: str, arguments: dict[str, Any]) -> None:
    """Raise `ModelError` where the `config.json` of a model (a folder, hub id or that file) names kernels from elsewhere.

    `arguments` are those given to `from_pretrained`. What cannot be read is the loader's to say.
    """
    try:
        file = Path(name) if Path(name).is_file() else fetched(name, "config.json", revision, arguments)
        content = None if file is None else json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    todo = [content]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
            for key, value in one.items():
                if key.lstrip("_").removesuffix("_internal") in _KEYS and (place := _repository(value)):
                    raise ModelError(
                        f"`{printable(name)}`: its config.json asks for the kernels of {printable(place, 100)}, compiled"
                        " code that transformers would download and run. It is not run unasked: take the line out of"
                        " config.json, or set `trust_remote_code: true`."
                    )


def _repository(value: Any) -> str | None:
    names = value.values() if isinstance(value, dict) else [value]
    return next((one for one in names if isinstance(one, str) and "/" in one), None)
