"""`dynotune prepare --show 3`: rows as the model will see them, with the tokens that carry loss marked.

What a data set trains is decided by templates, masks and truncation, and none of it shows in the loss. Looking at three
rows does. Text from data never reaches the terminal raw: control and bidirectional characters are escaped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from dynotune.config.whole import WholeConfig
from dynotune.data.account.ledger import Ledger, count_labels
from dynotune.data.checks.rows import row_notices
from dynotune.data.checks.text_checks import ControlTokens
from dynotune.data.checks.view import View
from dynotune.data.examples import IGNORE, Example
from dynotune.data.formats.preference import SIDES
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.opening import open_training
from dynotune.data.rows import BadRow
from dynotune.data.sources.columns import parsed, with_columns
from dynotune.data.tokens.encode import Encoder
from dynotune.data.tokens.pairs import sides_of
from dynotune.model.tokenizer import load_tokenizer
from dynotune.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from transformers import PreTrainedTokenizerBase

HEAD, TAIL = 700, 300
"""Tokens shown of a longer example: its beginning and its end."""

TRAINED, CONTEXT, CUT = "bold green", "default", "dim strike"
TRAINED_SPECIAL, SPECIAL = "bold black on green", "white on grey37"


@dataclass(frozen=True)
class Marks:
    """How a trained run of tokens is told from the rest where there is no colour."""

    coloured: bool
    ascii_only: bool

    @property
    def trained(self) -> tuple[str, str]:
        if self.coloured:
            return "", ""
        return ("[[", "]]") if self.ascii_only else ("⟦", "⟧")

    @property
    def newline(self) -> str:
        return "\\n" if self.ascii_only else "⏎"

    @property
    def ellipsis(self) -> str:
        return "..." if self.ascii_only else "…"


def show_rows(config: WholeConfig, n: int, console: "Console") -> None:
    """Print the first `n` rows of the training data, tokenised and labelled, good or bad.

    Raises what loading the tokenizer and opening the data raise. Reads no more rows than it shows.
    """
    tokenizer = load_tokenizer(config, config)
    encoder = Encoder(tokenizer, config)
    marks = Marks(console.is_terminal and console.color_system is not None, console.options.ascii_only)
    _print_legend(console, marks)
    stream, _ = open_training(config, None, Ledger())
    columns = {} if stream.columns_applied else config.columns
    setting = Setting.of(config, tokenizer)
    control = ControlTokens.of(tokenizer)
    shown = 0
    for record in map(parsed, stream.rows):
        if shown >= n:
            break
        shown += 1
        recognised = (
            normalise(record, setting) if not isinstance(record := with_columns(record, columns), BadRow) else record
        )
        if isinstance(recognised, BadRow):
            _print_bad(console, recognised)
            continue
        name, row = recognised
        before = encoder.notices.copy()
        result = encoder.encode([row])[0]
        if isinstance(result, BadRow):
            _print_bad(console, result)
            continue
        views = [View(side) for side in sides_of(row)]
        notices = [*(name for view in views for name in row_notices(view, control)), *(encoder.notices - before)]
        examples = [result] if isinstance(result, Example) else result
        for number, example in enumerate(examples, 1):
            part = f"{name}, document {number} of {len(examples)}" if len(examples) > 1 else name
            if row.kind == "pair":
                part = f"{name}, {SIDES[number - 1]}"
            print_example(
                example, tokenizer, console, marks, config=config, title=part, notices=list(dict.fromkeys(notices))
            )
    if not shown:
        console.print("The training data has no rows.")
    for sentence in encoder.report:
        console.print(f"note: {sentence}", markup=False, highlight=False)


def print_example(
    example: Example,
    tokenizer: "PreTrainedTokenizerBase",
    console: "Console",
    marks: Marks,
    *,
    config: WholeConfig,
    title: str,
    notices: list[str],
) -> None:
    """One example between two rules: place and counts above, what is remarkable below."""
    from rich.rule import Rule
    from rich.text import Text

    tokens, labels = len(example.ids_T), count_labels(example)
    console.print()
    console.print(Rule(Text(printable(f"{example.place}  {title}")), align="left", style="dim"))
    share = f"{tokens:,} tokens, {labels:,} trained ({labels / tokens:.0%})"
    kept = _kept(tokens, config)
    lost = count_labels(example) - _trained(example, kept)
    if kept != (0, tokens):
        cut = tokens - (kept[1] - kept[0])
        share += f"; `max_length: {config.max_length}` cuts {cut:,} tokens, {lost:,} of them trained"
    console.print(share, style="dim", markup=False, highlight=False)
    if not _trained(example, kept):
        console.print("No trained token is left after the cut: this row would be left out.", style="bold red")
    console.print(_body(example, tokenizer, marks, kept), soft_wrap=False)
    if notices:
        console.print(f"notices: {', '.join(printable(notice) for notice in notices)}", style="yellow", markup=False)


def _kept(tokens: int, config: WholeConfig) -> tuple[int, int]:
    if config.max_length is None or tokens <= config.max_length:
        return 0, tokens
    if config.truncation_mode == "keep_start":
        return 0, config.max_length
    return tokens - config.max_length, tokens


def _trained(example: Example, kept: tuple[int, int]) -> int:
    """Label tokens between two places. The first token of what is kept has no predecessor."""
    start, end = kept
    return int(np.count_nonzero(example.labels_T[start + 1 : end] != IGNORE))


def _body(example: Example, tokenizer: "PreTrainedTokenizerBase", marks: Marks, kept: tuple[int, int]) -> "Text":
    from rich.text import Text

    body = Text()
    tokens = len(example.ids_T)
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    for first, last in _windows(tokens):
        if first:
            body.append(f"\n{marks.ellipsis} {first - HEAD:,} tokens not shown {marks.ellipsis}\n", style="dim italic")
        inside, was_kept = False, True
        for (trained, is_special, is_kept), ids in _runs(example, special, kept, first, last):
            marked = trained and is_kept
            if marked != inside:
                body.append(marks.trained[0] if marked else marks.trained[1])
                inside = marked
            if is_kept != was_kept and not marks.coloured:
                body.append(f"<<{'max_length cuts from here' if was_kept else 'max_length cuts up to here'}>>")
            was_kept = is_kept
            if not is_kept:
                style = CUT
            elif is_special:
                style = TRAINED_SPECIAL if trained else SPECIAL
            else:
                style = TRAINED if trained else CONTEXT
            body.append(_visible(_decode(tokenizer, ids), marks), style=style)
        body.append(marks.trained[1] if inside else "")
    return body


def _windows(tokens: int) -> list[tuple[int, int]]:
    return [(0, tokens)] if tokens <= HEAD + TAIL else [(0, HEAD), (tokens - TAIL, tokens)]


def _runs(
    example: Example, special: set[int], kept: tuple[int, int], first: int, last: int
) -> Iterator[tuple[tuple[bool, bool, bool], list[int]]]:
    """Neighbouring tokens of one kind: (trained, special, kept) and their ids. Special tokens stand alone."""

    def state(index: int) -> tuple[bool, bool, bool, int]:
        is_special = int(example.ids_T[index]) in special
        trained = index > 0 and bool(example.labels_T[index] != IGNORE)
        return trained, is_special, kept[0] <= index < kept[1], index if is_special else -1

    for (trained, is_special, is_kept, _), indices in groupby(range(first, last), state):
        yield (trained, is_special, is_kept), [int(example.ids_T[index]) for index in indices]


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """The text of a run inside a longer one: decoders of SentencePiece models strip the space at the very beginning."""
    text = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    piece = tokenizer.convert_ids_to_tokens(ids[0])
    return f" {text}" if str(piece).startswith("▁") and not text.startswith(" ") else text


def _visible(text: str, marks: Marks) -> str:
    lines = text.split("\n")
    return f"{marks.newline}\n".join(printable(line.replace("\t", "    ")) for line in lines)


def _print_legend(console: "Console", marks: Marks) -> None:
    from rich.text import Text

    legend = Text("Trained tokens ")
    if marks.coloured:
        legend.append("look like this", style=TRAINED).append(" or, if special, ").append(
            "<like this>", TRAINED_SPECIAL
        )
        legend.append("; the rest is context, with ").append("<special>", SPECIAL).append(" tokens and ")
        legend.append("what max_length cuts", CUT).append(".")
    else:
        opening, closing = marks.trained
        legend.append(f"stand between {opening} and {closing}; the rest is context.")
    console.print(legend.append(f" {marks.newline} is a line break; other control characters are escaped."))


def _print_bad(console: "Console", bad: BadRow) -> None:
    from rich.rule import Rule
    from rich.text import Text

    console.print()
    console.print(Rule(Text(printable(f"{bad.place}  bad row")), align="left", style="red"))
    console.print(f"{bad.reason}: {printable(bad.detail)}", style="red", markup=False, highlight=False)
    if bad.beginning:
        console.print(f"it begins: {printable(bad.beginning)}", style="dim", markup=False, highlight=False)
