"""`dynotune prepare`: read, render and tokenise a configuration's data, and account for every row, without training."""

from typing import TYPE_CHECKING, Any

from dynotune.config.sft import SFTConfig
from dynotune.data.load import load_train_and_eval
from dynotune.data.show import show_rows
from dynotune.data.tokens.encode import Encoder
from dynotune.model.tokenizer import load_tokenizer
from dynotune.plan.content import make_content

if TYPE_CHECKING:
    from rich.console import Console


def prepare_data(config: SFTConfig, show: int, console: "Console") -> dict[str, Any]:
    """Print `show` rows with their labels, then read all data and print what became of it.

    Returns the format and ledger of each data set by name. Writes nothing: with
    `on_bad_row: skip` bad rows are counted here, and written to the quarantine file by a run.

    Raises `ConfigError`, `DataError` or `TemplateError`, as a run would before its first step.
    """
    for sentence in config.notices:
        console.print(f"note: {sentence}", markup=False, highlight=False)
    if show:
        show_rows(config, show, console)
    encoder = Encoder(load_tokenizer(config, config), config)
    train, evaluation = load_train_and_eval(config, encoder, None)
    prepared = {}
    for name, loaded in {"training data": train, **evaluation}.items():
        packed = config.packing if loaded is train else config.packing_of_evaluation
        make_content(loaded.examples, config, loaded.ledger, packing=config.packing_strategy if packed else None)
        for sentence in (*loaded.sources, loaded.format):
            console.print(f"{name}: {sentence}", markup=False, highlight=False)
        console.print(loaded.ledger.summary(name))
        prepared[name] = {"format": loaded.format, "ledger": loaded.ledger.to_json()}
    for sentence in encoder.report:
        console.print(f"template: {sentence}", markup=False, highlight=False)
    return prepared
