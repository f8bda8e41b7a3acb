"""The data sets of a run: what is trained on, and what it is evaluated on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.chunk import RowEncoder
from dynotune.data.ingest import Loaded
from dynotune.data.opening import UNNAMED, Stream, open_evaluation, open_training, refuse_contradictions
from dynotune.data.sources.arrange import hold_out
from dynotune.data.store.obtain import Obtaining

__all__ = ["Loaded", "RowEncoder", "load_train_and_eval"]


def load_train_and_eval(
    config: WholeConfig,
    encoder: RowEncoder,
    run_folder: Path | None,
    *,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    say: Callable[[str], None] = lambda text: None,
    rebuild: bool = False,
    verify: bool = False,
) -> tuple[Loaded, dict[str, Loaded]]:
    """The training data, and the evaluation sets by name (`eval` where it has none), from the token store where it has them.

    `train_dataset` and `eval_dataset` are what a Python user passed: a `datasets.Dataset`, an `IterableDataset`, a
    list of dicts; for evaluation also several by name. Bad rows go to `run_folder/quarantine.jsonl`, which replaces
    one of an earlier run. `say` gets what should be known while it happens; `rebuild` makes all tokens anew; `verify`
    checks every byte of a store. Raises `ConfigError` for keys that contradict each other and `DataError` for data that is
    not there, cannot be read, or (under `on_bad_row: error`) has a bad row.
    """
    quarantine = None if run_folder is None else run_folder / "quarantine.jsonl"
    if quarantine is not None:
        quarantine.unlink(missing_ok=True)
    refuse_contradictions(config, train_dataset, eval_dataset)
    ledger = Ledger()

    def load(stream: Stream, account: Ledger) -> Loaded:
        return Obtaining(stream, config, encoder, quarantine, account, say, rebuild, verify).load()

    # All names are resolved before the first row is read, so that a wrong one costs no time.
    train_stream, test_split = open_training(config, train_dataset, ledger)
    eval_streams = open_evaluation(config, eval_dataset, test_split)
    train = load(train_stream, ledger)
    evaluation = {name: load(stream, Ledger()) for name, stream in eval_streams.items()}
    if config.test_split_size is not None:
        train, evaluation[UNNAMED] = _split(train, config.test_split_size, config.seed)
    return train, evaluation


def _split(train: Loaded, size: float, seed: int) -> tuple[Loaded, Loaded]:
    kept, held_out, ledger = hold_out(train.examples, train.ledger, size, seed)
    statement = f"{len(held_out):,} rows held out of the training data (test_split_size {size:g}, seed {seed})"
    return (
        Loaded(kept, train.ledger, train.format, train.sources, train.store, train.about),
        Loaded(held_out, ledger, f"{len(held_out):,} of these rows: {train.format}", [statement]),
    )
