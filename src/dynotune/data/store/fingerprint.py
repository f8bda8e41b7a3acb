"""What decides what the tokens are, part by part, so that it can be said which part changed.

Truncation, seeds, batches and the order of rows belong to the plan and are no part of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune._version import __version__
from dynotune.data.store.layout import FORMAT
from dynotune.printable import printable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from dynotune.config.keys.data import DataConfig

CONTENTS = "contents"

KEYS = (
    "columns",
    "dataset_text_field",
    "on_bad_row",
    "completion_only_loss",
    "assistant_only_loss",
    "chat_template_kwargs",
    "per_example",
)
"""What of the configuration decides how rows become tokens. Each is a part of its own."""

WORDS = {
    "per_example": "whether rows are pairs of answers",
    "tokenizer": "the tokenizer",
    "special_tokens": "the tokenizer's special tokens (end, padding, added tokens)",
    "chat_template": "the chat template",
    "date": "the date, which the chat template writes",
    "asked": "which rows are asked for (slice, mixture)",
    "versions": "the version of tokenizers, transformers or Jinja",
    "dynotune": "Dynotune's own code",
    "store_format": "the format of the store",
}
"""How parts are said to people, where it is not by their key."""


def parts_of(config: DataConfig, tokenizer: PreTrainedTokenizerBase, asked: Mapping[str, Any]) -> dict[str, str]:
    """A digest for each part but the contents of the source."""
    template = tokenizer.chat_template
    parts = {key: _digest(getattr(config, key)) for key in KEYS}
    parts |= {
        "tokenizer": _tokenizer(tokenizer),
        "special_tokens": _special_tokens(tokenizer),
        "chat_template": _digest(template),
        "asked": _digest(dict(asked)),
        "versions": _digest([version(name) for name in ("tokenizers", "transformers", "jinja2")]),
        "dynotune": _own_code(),
        "store_format": _digest(FORMAT),
    }
    if "strftime_now" in json.dumps(template):
        parts["date"] = _digest(time.strftime("%Y-%m-%d"))
    return parts


def differing(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the parts that differ, contents left out."""
    return [part for part in known.keys() | now.keys() if part != CONTENTS and known.get(part) != now.get(part)]


def in_words(parts: list[str]) -> str:
    """`the chat template and chat_template_kwargs`."""
    # A name that is none of ours stood in a file that anybody may have written.
    said = [WORDS.get(part, f"`{printable(part, 40)}`") for part in sorted(parts)]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"


def _digest(value: Any) -> str:
    return blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def _tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """What the tokenizer does, not where it came from."""
    kind = type(tokenizer)
    told: list[Any] = [kind.__module__, kind.__qualname__, tokenizer.split_special_tokens, _code_of(kind)]
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        fast = str(backend.to_str())
        # Before this key stand truncation and padding, which whoever called last has set, and the added tokens, which
        # are a part of their own. Inside a JSON string its quotes would be escaped.
        told.append(blake2b(fast[fast.index('"normalizer":') :].encode()).hexdigest())
    else:
        told.append(sorted(tokenizer.get_vocab().items()))
        model: Any = getattr(tokenizer, "sp_model", None)
        if model is not None:
            told.append(blake2b(model.serialized_model_proto()).hexdigest())
        settings: Any = tokenizer.init_kwargs
        told.append({key: value for key, value in settings.items() if isinstance(value, str | int | float | bool)})
    return _digest(told)


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> str:
    added = {
        index: [token.content, token.special, token.lstrip, token.rstrip, token.single_word, token.normalized]
        for index, token in tokenizer.added_tokens_decoder.items()
    }
    return _digest([tokenizer.special_tokens_map, added, tokenizer.pad_token_id, tokenizer.eos_token_id])


def _code_of(kind: type) -> str:
    """Code that a model's repository brings may change under the same names."""
    if kind.__module__.startswith("transformers."):
        return ""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return blake2b(Path(file).read_bytes()).hexdigest() if file and Path(file).is_file() else ""


@cache
def _own_code() -> str:
    """Version and source of what makes tokens, so that a changed line cannot serve the tokens of the old one."""
    digest = blake2b(__version__.encode(), digest_size=16)
    data = Path(__file__).parents[1]
    for file in sorted(data.rglob("*.py")):
        relative = file.relative_to(data)
        if relative.parts[0] not in ("store", "workers"):
            digest.update(f"{relative.as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()
