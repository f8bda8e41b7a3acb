"""What a run is trained and evaluated on: its data read, planned and accounted for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dynotune.config.whole import WholeConfig
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.load import Loaded, load_train_and_eval
from dynotune.data.rows import Place
from dynotune.data.tokens.encode import Encoder
from dynotune.execution.feed import Documents, Items
from dynotune.execution.pairs import PairItems
from dynotune.parallel.ranks import Ranks
from dynotune.plan.content import Content, make_content
from dynotune.plan.make import check_vocabulary, rows_without_labels
from dynotune.plan.numbered import NumberedDocuments, NumberedPairs, numbered
from dynotune.plan.plan import Plan
from dynotune.say import sayer
from dynotune.train.evaluate import HeldOut
from dynotune.train.folder.run_folder import RunFolder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Material:
    """The data as it was read, and what a run makes of it."""

    data: Loaded
    held_out_data: Mapping[str, Loaded]
    plan: Plan
    items: Items
    """What the plan's rows are: documents, pieces of them where they are packed, or pairs."""

    places: Sequence[Place]
    """Where each of them stands in the data."""

    held_out: Mapping[str, HeldOut]

    def check_vocabulary(self, size: int) -> None:
        """Raise `DataError` where a token has no row in the embedding of a model that has so many."""
        for loaded in (self.data, *self.held_out_data.values()):
            check_vocabulary(loaded.examples, size)

    @property
    def longest_document(self) -> int:
        """Tokens of the longest sequence that attends to itself, held-out ones too."""
        return max(self.plan.longest_document, *(held.longest_document for held in self.held_out.values()), 0)


def read_material(
    config: WholeConfig,
    folder: RunFolder,
    tokenizer: "PreTrainedTokenizerBase",
    ranks: Ranks,
    console: Console,
    *,
    train_dataset: Any,
    eval_dataset: Any,
) -> Material:
    """Read the data, plan the run, and say what became of every row. Raises `DataError` and `TemplateError`."""
    say = sayer(console)
    encoder = Encoder(tokenizer, config)
    if ranks.world > 1 and config.token_cache == "off":  # noqa: S105  (no secret: it is the key's value)
        say(f"note: `token_cache: off`: each of the {ranks.world} processes tokenises all rows by itself")
    with ranks.one_after_another("preparing the data"):
        data, held_out_data = load_train_and_eval(
            config,
            encoder,
            folder.starting if folder.writes else None,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            say=say,
        )
    plan, train, held_out = _make_plan(config, folder, tokenizer, data, held_out_data, ranks)
    _report_data(config, console, encoder, data, held_out_data, plan)
    return Material(data, held_out_data, plan, _items_of(train), train.places, held_out)


def _make_plan(
    config: WholeConfig,
    folder: RunFolder,
    tokenizer: "PreTrainedTokenizerBase",
    data: Loaded,
    held_out_data: Mapping[str, Loaded],
    ranks: Ranks,
) -> tuple[Plan, NumberedDocuments | NumberedPairs, dict[str, HeldOut]]:
    """Apply `max_length` and packing to every data set, account for what they cut, and plan the run.

    Returns the plan, what it is made of, and the held-out data.
    """
    quarantine = Quarantine(folder.starting / "quarantine.jsonl").write if folder.writes else None

    shuffle_seed = config.seed if config.shuffle_dataset else None

    def content_of(loaded: Loaded, packed: bool) -> Content:
        return make_content(
            loaded.examples,
            config,
            loaded.ledger,
            quarantine,
            lambda ids: str(tokenizer.decode(ids)),
            shuffle_seed=shuffle_seed,
            packing=config.packing_strategy if packed else None,
        )

    content = content_of(data, config.packing)
    train = numbered(content, config)
    # Shuffled rows make other steps, so a checkpoint must not go on under them.
    digest = data.examples.digest() + ("" if shuffle_seed is None else f", shuffled by {shuffle_seed}")
    plan = Plan(
        train.spans,
        train.rows,
        config,
        config.seed,
        digest,
        packing=content.packing,
        sets=train.sets,
        rank=ranks.rank,
        world=ranks.world,
    )
    held_out = {}
    for name, loaded in held_out_data.items():
        held = numbered(content_of(loaded, config.packing_of_evaluation), config, held_out=True)
        held_out[name] = HeldOut(_items_of(held), held.spans, held.rows[held.spans.label_tokens[held.rows] > 0])
    return plan, train, held_out


def _items_of(data: NumberedDocuments | NumberedPairs) -> Items:
    if isinstance(data, NumberedPairs):
        return PairItems(data.pairs, data.spans)
    return Documents(data.content.examples, data.spans)


def _report_data(
    config: WholeConfig,
    console: Console,
    encoder: Encoder,
    data: Loaded,
    held_out_data: Mapping[str, Loaded],
    plan: Plan,
) -> None:
    """What was read, what became of it, and what a step will contain."""
    say = sayer(console)
    for name, loaded in {"training data": data, **held_out_data}.items():
        for sentence in loaded.lines():
            say(f"{name}: {sentence}")
        console.print(loaded.ledger.summary(name))
        if lost := rows_without_labels(loaded.ledger, config):
            say(f"note: {name}: {lost}")
    for sentence in encoder.report:
        say(f"template: {sentence}")
    for sentence in plan.summary():
        say(sentence)


def named_paths(config: WholeConfig) -> dict[str, str]:
    """Values of the keys that may name files or folders which the run reads."""
    keys = ("model_name_or_path", "tokenizer_name_or_path", "dataset_name", "chat_template_path")
    named = {key: str(value) for key in keys if (value := getattr(config, key))}
    named |= {f"datasets[{i}].path": entry.path for i, entry in enumerate(config.datasets)}
    held_out = config.eval_dataset_name or {}
    return named | (held_out if isinstance(held_out, dict) else {"eval_dataset_name": held_out})
