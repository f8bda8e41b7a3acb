"""The data sets of a run: what is trained on, and what it is evaluated on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynotune.config.sft import SFTConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.chunk import RowEncoder
from dynotune.data.ingest import Loaded, load_examples
from dynotune.data.printable import printable
from dynotune.data.rows import BadRow, Record
from dynotune.data.sources.arrange import hold_out
from dynotune.data.sources.locate import Location, Source, open_object, open_splits
from dynotune.data.sources.mixture import mixture_rows, open_mixture
from dynotune.data.sources.splits import choose_split, slice_rows
from dynotune.errors import ConfigError, DataError

__all__ = ["Loaded", "RowEncoder", "load_examples", "load_train_and_eval"]

UNNAMED = "eval"
"""Name of an evaluation set that was given without one."""


@dataclass
class Stream:
    """Rows as they are read, with what to say about where they come from."""

    name: str
    statements: list[str]
    rows: Iterable[Record | BadRow]
    columns_applied: bool = False

    def __post_init__(self) -> None:
        self.name, self.statements = printable(self.name), [printable(statement) for statement in self.statements]


def load_train_and_eval(
    config: SFTConfig,
    encoder: RowEncoder,
    run_folder: Path | None,
    *,
    train_dataset: Any = None,
    eval_dataset: Any = None,
) -> tuple[Loaded, dict[str, Loaded]]:
    """The training data, and the evaluation sets by name (`eval` where it has none).

    `train_dataset` and `eval_dataset` are what a Python user passed: a `datasets.Dataset`, an `IterableDataset`, a
    list of dicts; for evaluation also several by name. Bad rows go to `run_folder/quarantine.jsonl`, which replaces
    one of an earlier run. Raises `ConfigError` for keys that contradict each other and `DataError` for data that is not
    there, cannot be read, or (under `on_bad_row: error`) has a bad row.
    """
    quarantine = None if run_folder is None else run_folder / "quarantine.jsonl"
    if quarantine is not None:
        quarantine.unlink(missing_ok=True)
    _refuse_contradictions(config, train_dataset, eval_dataset)
    ledger = Ledger()

    def load(stream: Stream, account: Ledger) -> Loaded:
        settings = config.model_copy(update={"columns": {}}) if stream.columns_applied else config
        loaded = load_examples(
            stream.rows,
            settings,
            encoder,
            quarantine=quarantine,
            ledger=account,
            show_progress=not config.disable_tqdm,
            name=stream.name,
        )
        loaded.sources = stream.statements
        return loaded

    # All names are resolved before the first row is read, so that a wrong one costs no time.
    train_stream, test_split = open_training(config, train_dataset, ledger)
    eval_streams = _open_evaluation(config, eval_dataset, test_split)
    train = load(train_stream, ledger)
    evaluation = {name: load(stream, Ledger()) for name, stream in eval_streams.items()}
    if config.test_split_size is not None:
        train, evaluation[UNNAMED] = _split(train, config.test_split_size, config.seed)
    return train, evaluation


def _refuse_contradictions(config: SFTConfig, train_dataset: Any, eval_dataset: Any) -> None:
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


def open_training(config: SFTConfig, passed: Any, ledger: Ledger) -> tuple[Stream, Source | None]:
    """The training rows, and the source's own test split where it has one. Nothing is read yet."""
    if passed is not None:
        source = open_object(passed, "train_dataset")
        return Stream("train_dataset", [source.statement], source), None
    if config.datasets:
        parts = open_mixture(config)
        return Stream("datasets", [p.statement for p in parts], mixture_rows(parts, config, ledger), True), None
    assert config.dataset_name is not None
    splits = open_splits(Location(config.dataset_name, config.dataset_config))
    stream = _stream_of(splits, config.dataset_train_split, config.dataset_name, "dataset_train_split")
    return stream, splits.get(config.dataset_test_split)


def _open_evaluation(config: SFTConfig, passed: Any, test_split: Source | None) -> dict[str, Stream]:
    if passed is not None:
        sets = passed if isinstance(passed, Mapping) else {UNNAMED: passed}
        sources = {name: open_object(rows, f"eval_dataset[{name}]") for name, rows in sets.items()}
        return {name: Stream(source.name, [source.statement], source) for name, source in sources.items()}
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
    return {UNNAMED: Stream(test_split.name, [test_split.statement], test_split)}


def _open_named(path: str, test_split: str) -> Stream:
    splits = open_splits(Location(path))
    # A file or folder that was named for evaluation and holds one split is meant as a whole.
    asked = next(iter(splits)) if len(splits) == 1 else test_split
    return _stream_of(splits, asked, path, "dataset_test_split")


def _stream_of(splits: Mapping[str, Source], asked: str, name: str, key: str) -> Stream:
    source, bounds = choose_split(splits, asked, name, key)
    statement = source.statement + (f", {asked}" if bounds else "")
    return Stream(name, [statement], slice_rows(source, bounds, source.count))


def _split(train: Loaded, size: float, seed: int) -> tuple[Loaded, Loaded]:
    kept, held_out, ledger = hold_out(train.examples, train.ledger, size, seed)
    statement = f"{len(held_out):,} rows held out of the training data (test_split_size {size:g}, seed {seed})"
    return (
        Loaded(kept, train.ledger, train.format, train.sources),
        Loaded(held_out, ledger, f"{len(held_out):,} of these rows: {train.format}", [statement]),
    )
