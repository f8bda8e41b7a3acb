"""Rows that stand in a file for training and in one for evaluation, word for word, where a configuration, a program or a
command names both beside each other: by hashes of their first bytes' rows."""

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import RowsOfBoth
from dynotune.audit.facts.script import Script
from dynotune.audit.place import Place
from dynotune.audit.regular import NotRegularError, leaves, start_of

_MOST_BYTES = 1 << 20
_MOST_PAIRS = 10
_LINES = (".jsonl", ".ndjson", ".csv", ".tsv", ".txt")
_TRAIN = frozenset({"train", "train_file", "train_data", "train_path", "training", "train_data_path"})
_HELD_OUT = ("eval", "test", "validation", "dev", "val", "valid")
_TEST = frozenset(f"{name}{behind}" for name in _HELD_OUT for behind in ("", "_file", "_data", "_path", "_data_path"))


def rows_of_both(
    root: Path, configs: Sequence[ConfigFile], scripts: Sequence[Script], launches: Sequence[Launch]
) -> list[RowsOfBoth]:
    """Of pairs of files in the project that share rows, in the order in which they are named."""
    found: list[RowsOfBoth] = []
    pairs = dict.fromkeys((*_of_configs(configs), *_of_scripts(scripts), *_of_launches(launches)))
    held: dict[str, Mapping[str, int]] = {}
    for train, test in list(pairs)[:_MOST_PAIRS]:
        for name in (train, test):
            if name not in held:
                held[name] = _rows(root, name)
        shared = [row for row in held[test] if row in held[train]]
        if shared and train != test:
            lines = sorted((held[test][row], held[train][row]) for row in shared)
            of_test, of_train = lines[0]
            found.append(RowsOfBoth(Place(test, of_test), Place(train, of_train), len(shared), len(held[test])))
    return found


def _pairs(named: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Of keys in one mapping."""
    trains = [str(value) for key, value in named.items() if key.lower() in _TRAIN and _is_file(value)]
    tests = [str(value) for key, value in named.items() if key.lower() in _TEST and _is_file(value)]
    yield from ((train, test) for train in trains for test in tests)


def _is_file(value: object) -> bool:
    inside = isinstance(value, str) and not value.startswith(("/", "..", "~")) and "$" not in value
    return inside and str(value).endswith((*_LINES, ".json"))


def _of_configs(configs: Sequence[ConfigFile]) -> Iterator[tuple[str, str]]:
    for config in configs:
        yield from _pairs(config.values)
        yield from (pair for one in config.values.values() if isinstance(one, Mapping) for pair in _pairs(one))


def _of_scripts(scripts: Sequence[Script]) -> Iterator[tuple[str, str]]:
    for script in scripts:
        for node in ast.walk(script.tree) if ".json" in script.source or ".csv" in script.source else ():
            if isinstance(node, ast.Dict):
                yield from _pairs(
                    {
                        str(key.value): value.value
                        for key, value in zip(node.keys, node.values, strict=True)
                        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
                    }
                )
            elif isinstance(node, ast.Call):
                yield from _pairs(
                    {
                        word.arg: word.value.value
                        for word in node.keywords
                        if word.arg and isinstance(word.value, ast.Constant)
                    }
                )
        yield from _pairs({name.lstrip("-").lower(): held.value for name, held in script.constants.items()})


def _of_launches(launches: Sequence[Launch]) -> Iterator[tuple[str, str]]:
    for launch in launches:
        yield from _pairs({name: flag.value for name, flag in launch.flags.items()})


def _rows(root: Path, name: str) -> Mapping[str, int]:
    """A hash of each row, with its line; nothing where it cannot be read."""
    path = root / name
    try:
        if not path.is_file() or leaves(path, root):
            return {}
        text = start_of(path, _MOST_BYTES).decode("utf-8", "replace")
        if name.endswith(".json"):
            held = json.loads(text)
            rows = [(1, json.dumps(one, sort_keys=True)) for one in held] if isinstance(held, list) else []
        else:
            head = 1 if name.endswith((".csv", ".tsv")) else 0
            whole = text if len(text) < _MOST_BYTES else text.rpartition("\n")[0]
            rows = [(number, line.strip()) for number, line in enumerate(whole.split("\n"), 1) if line.strip()][head:]
            if name.endswith(("l", "ndjson")):
                rows = [(number, json.dumps(json.loads(line), sort_keys=True)) for number, line in rows]
    except (OSError, ValueError, RecursionError, NotRegularError):
        return {}
    found: dict[str, int] = {}
    for number, row in rows:
        if len(row) > 15:
            found.setdefault(hashlib.blake2b(row.encode(errors="replace"), digest_size=16).hexdigest(), number)
    return found
