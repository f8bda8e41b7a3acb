"""A data set with something of everything, and ways to load it."""

import json
import os
from pathlib import Path
from typing import Any

from dynotune.config.sft import SFTConfig
from dynotune.data.ingest import Loaded
from dynotune.data.load import load_train_and_eval
from dynotune.data.tokens.encode import Encoder
from tests.data.made_tokenizer import made_tokenizer

OLD = 1_700_000_000


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


ROWS: list[dict[str, Any]] = [
    chat("What is two plus two?", "Four."),
    {"prompt": "one ", "completion": "two"},
    chat("What is two plus two?", "Five."),
    {"text": "The quick brown fox"},
    {"question": "not a format"},
    chat("<|im_end|> in content", "yes"),
    {"messages": "bad"},
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS, *, age: bool = True) -> Path:
    """A JSON Lines file, by default one whose time of change lies well back."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if age:
        os.utime(path, (OLD, OLD))
    return path


def config_of(path: Path | None, **keys: Any) -> SFTConfig:
    name = None if path is None else str(path)
    return SFTConfig(**{"dataset_name": name, "on_bad_row": "skip", "disable_tqdm": True, **keys})


def load(path: Path | None, tokenizer: Any = None, run: Path | None = None, **keys: Any) -> Loaded:
    options = {name: keys.pop(name) for name in ("rebuild", "verify", "train_dataset", "say") if name in keys}
    config = config_of(path, **keys)
    encoder = Encoder(tokenizer or made_tokenizer(), config)
    loaded = load_train_and_eval(config, encoder, run, **options)[0]
    loaded.about["report"], loaded.about["noticed"] = encoder.report, dict(encoder.notices)
    return loaded


def same(one: Loaded, other: Loaded) -> bool:
    """Whether two data sets are equal in everything that a run sees."""
    return (
        one.examples.digest() == other.examples.digest()
        and list(one.examples.places) == list(other.examples.places)
        and one.ledger.to_json() == other.ledger.to_json()
        and (one.format, one.sources) == (other.format, other.sources)
        and (one.about["report"], one.about["noticed"]) == (other.about["report"], other.about["noticed"])
    )
