"""`dynotune prepare`: read, render and tokenise a configuration's data into the token store, and account for every row."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.config.whole import WholeConfig
from dynotune.data.load import load_train_and_eval
from dynotune.data.store.describe import about_rows, in_words
from dynotune.data.store.location import cache_folder
from dynotune.data.store.prune import prune
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import ConfigError
from dynotune.model.tokenizer import load_tokenizer
from dynotune.plan.content import make_content
from dynotune.prepare.export import ExportKind, export_examples, refuse_existing
from dynotune.prepare.show import show_rows
from dynotune.say import sayer

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PrepareOptions:
    """What `dynotune prepare` is asked for besides a configuration."""

    show: int = 0
    """Rows to print first, with their labels."""

    rebuild: bool = False
    """Tokenise anew and replace what is in the store."""

    verify: bool = False
    """Check every byte of a store, whatever its size."""

    export: Path | None = None
    """Where to write rows for other trainers."""

    export_packed: int | None = None
    """Tokens of an exported row that holds several documents; None: one document a row."""


def prepare_data(config: WholeConfig, options: PrepareOptions, console: "Console") -> dict[str, Any]:
    """Put the data into the token store and print what became of it.

    Returns the figures of each data set by name. With `on_bad_row: skip` bad rows are counted here, and written to the
    quarantine file by a run. Raises `ConfigError`, `DataError` or `TemplateError`, as a run would before its first step.
    """
    say = sayer(console)
    for sentence in config.notices:
        say(f"note: {sentence}")
    kind = ExportKind.of(options.export, options.export_packed) if options.export else None
    if kind is not None and config.per_example > 1:
        raise ConfigError(
            "flag --export: a row of other trainers holds no pair. Leave the flag out: what is prepared is kept in the token"
            " store either way."
        )
    if kind is not None and options.export is not None:
        refuse_existing(kind.file(options.export))  # before the work
    if options.show:
        show_rows(config, options.show, console)
    tokenizer = load_tokenizer(config, config)
    encoder = Encoder(tokenizer, config)
    train, evaluation = load_train_and_eval(
        config, encoder, None, say=say, rebuild=options.rebuild, verify=options.verify
    )
    prepared: dict[str, Any] = {}
    for name, loaded in {"training data": train, **evaluation}.items():
        packed = config.packing if loaded is train else config.packing_of_evaluation
        strategy = config.packing_strategy if packed else None
        content = make_content(loaded.examples, config, loaded.ledger, packing=strategy)
        for sentence in loaded.lines():
            say(f"{name}: {sentence}")
        about = loaded.about or about_rows(loaded.examples.lengths, loaded.examples.per_example)
        for sentence in in_words(about):
            say(f"{name}: {sentence}")
        console.print(loaded.ledger.summary(name))
        prepared[name] = {
            "format": loaded.format,
            "ledger": loaded.ledger.to_json(),
            "store": loaded.store,
            "about": about,
        }
        if kind is not None and options.export is not None:
            split = "train" if loaded is train else name
            place = options.export if loaded is train else kind.beside(options.export, name)
            written = export_examples(content, place, kind, split)
            say(f"{name}: exported {written}")
            prepared[name]["exported"] = written
    for sentence in encoder.report:
        say(f"template: {sentence}")
    return prepared


def prune_stores(token_cache_dir: str | None, days: float, console: "Console") -> dict[str, Any]:
    """Remove token stores that were not used for `days`, were never finished or are damaged, and print which."""
    cache = cache_folder(token_cache_dir)
    done = prune(cache, days)
    for one in done:
        console.print(
            f"{'removed' if one.removed else 'kept'} {one.path} ({one.why}, {one.bytes / 1e6:,.1f} MB)",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    freed = sum(one.bytes for one in done if one.removed)
    console.print(f"{freed / 1e6:,.1f} MB freed in {cache}", markup=False, highlight=False, soft_wrap=True)
    return {
        "cache": str(cache),
        "freed_bytes": freed,
        "removed": [{"path": str(one.path), "why": one.why, "bytes": one.bytes} for one in done if one.removed],
        "kept": [{"path": str(one.path), "why": one.why} for one in done if not one.removed],
    }
