"""Which rows a configuration and Python's arguments name: found, and not yet read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.rows import Found
from dynotune.data.sources.contents import Contents
from dynotune.data.sources.locate import Location, Source, open_object, open_splits
from dynotune.data.sources.mixture import Part, mixture_rows, open_mixture
from dynotune.data.sources.splits import choose_split, slice_rows
from dynotune.errors import ConfigError, DataError
from dynotune.printable import printable

UNNAMED = "eval"
"""Name of an evaluation set that was given without one."""


@dataclass
class Stream:
    """Rows as they are read, with what to say about where they come from."""

    name: str
    state: Callable[[], list[str]]
    """Sentences on where the rows come from. Asked for once they are read: a mixture's shares are not known before."""

    rows: Iterable[Found]
    contents: Callable[[], Contents]
    """What tells whether the rows changed."""

    identity: list[Any]
    """What names this data set, whatever it holds at the time: plain values."""

    asked: dict[str, Any] = field(default_factory=dict)
    """Which of its rows are wanted: plain values by key, besides those of the configuration."""

    columns_applied: bool = False

    def __post_init__(self) -> None:
        self.name = printable(self.name)

    @property
    def statements(self) -> list[str]:
        return [printable(statement) for statement in self.state()]


@dataclass
class _Sliced:
    """The rows of a source within bounds. Counting them, which percentages need, waits until they are read."""

    source: Source
    bounds: str | None

    def __iter__(self) -> Iterator[Found]:
        yield from slice_rows(self.source, self.bounds, self.source.count)


@dataclass
class _Mixture:
    parts: list[Part]
    config: WholeConfig
    ledger: Ledger

    def __iter__(self) -> Iterator[Found]:
        return mixture_rows(self.parts, self.config, self.ledger)


def refuse_contradictions(config: WholeConfig, train_dataset: Any, eval_dataset: Any) -> None:
    """Raises `ConfigError` where the training or the evaluation data is named twice, or no training data is."""
    given = {
        "train_dataset": train_dataset is not None,
        "datasets": bool(config.datasets),
        "dataset_name": config.dataset_name is not None,
    }
    _at_most_one(given, "training data")
    if not any(given.values()):
        raise ConfigError(
            "No training data. Give `dataset_name` (a file, folder, glob or hub id), `datasets`, or pass train_dataset."
        )
    given = {
        "eval_dataset": eval_dataset is not None,
        "eval_dataset_name": config.eval_dataset_name is not None,
        "test_split_size": config.test_split_size is not None,
    }
    _at_most_one(given, "evaluation data")


def _at_most_one(given: Mapping[str, bool], what: str) -> None:
    names = [f"`{name}`" for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} both name the {what}. Give one of them.")


def open_training(config: WholeConfig, passed: Any, ledger: Ledger) -> tuple[Stream, Source | None]:
    """The training rows, and the source's own test split where it has one. Nothing is read yet."""
    if passed is not None:
        return _stream(open_object(passed, "train_dataset"), ["passed", "train_dataset"]), None
    if config.datasets:
        parts = open_mixture(config)
        stream = Stream(
            "datasets",
            lambda: [part.statement for part in parts],
            _Mixture(parts, config, ledger),
            lambda: Contents.joined(part.source.contents() for part in parts),
            ["mixture", [[_whole(part.entry.path), part.entry.path] for part in parts]],
            {"datasets": [part.entry.model_dump(mode="json") for part in parts]},
            columns_applied=True,
        )
        return stream, None
    assert config.dataset_name is not None
    splits = open_splits(Location(config.dataset_name, config.dataset_config))
    stream = _stream_of(
        splits, config.dataset_train_split, config.dataset_name, "dataset_train_split", config.dataset_config
    )
    return stream, splits.get(config.dataset_test_split)


def open_evaluation(config: WholeConfig, passed: Any, test_split: Source | None) -> dict[str, Stream]:
    """The evaluation rows by name. Nothing is read yet."""
    if passed is not None:
        sets = passed if isinstance(passed, Mapping) else {UNNAMED: passed}
        sources = {name: open_object(rows, f"eval_dataset[{name}]") for name, rows in sets.items()}
        return {name: _stream(source, ["passed", "eval_dataset", name]) for name, source in sources.items()}
    if config.eval_dataset_name is not None:
        named = config.eval_dataset_name
        paths = named if isinstance(named, dict) else {UNNAMED: named}
        return {name: _open_named(path, config.dataset_test_split) for name, path in paths.items()}
    wanted = config.eval_strategy != "no" or config.eval_on_start
    if not wanted or config.test_split_size is not None:
        return {}
    if test_split is None:
        key = f"eval_strategy: {config.eval_strategy}" if config.eval_strategy != "no" else "eval_on_start: true"
        raise DataError(
            f"`{key}` needs held-out data, and the training data brings no split '{config.dataset_test_split}' "
            "(`dataset_test_split`). Give `eval_dataset_name`, or hold rows out with `test_split_size`."
        )
    assert config.dataset_name is not None
    return {
        UNNAMED: _stream(test_split, _identity(config.dataset_name, config.dataset_test_split, config.dataset_config))
    }


def _open_named(path: str, test_split: str) -> Stream:
    splits = open_splits(Location(path))
    # A file or folder that was named for evaluation and holds one split is meant as a whole.
    asked = next(iter(splits)) if len(splits) == 1 else test_split
    return _stream_of(splits, asked, path, "dataset_test_split", None)


def _stream_of(splits: Mapping[str, Source], asked: str, name: str, key: str, configuration: str | None) -> Stream:
    source, bounds = choose_split(splits, asked, name, key)
    split = next(found for found, one in splits.items() if one is source)
    stream = _stream(source, _identity(name, split, configuration), bounds)
    stream.name = printable(name)
    return stream


def _identity(name: str, split: str, configuration: str | None) -> list[Any]:
    return ["named", _whole(name), name, split, configuration]


def _stream(source: Source, identity: list[Any], bounds: str | None = None) -> Stream:
    statement = source.statement + (f", {identity[3]}{bounds}" if bounds else "")
    return Stream(
        source.name,
        lambda: [statement],
        _Sliced(source, bounds),
        source.contents,
        identity,
        {"slice": bounds},
    )


def _whole(name: str) -> str:
    """A relative path names other files from another folder; the name itself stands in the ledger."""
    return str(Path(name).expanduser().absolute())
