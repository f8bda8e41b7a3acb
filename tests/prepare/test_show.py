"""Promise: `--show` shows what is trained, with or without colour, and nothing of the data reaches the terminal raw."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.config.whole import WholeConfig
from dynotune.prepare.show import show_rows
from tests.data.made_tokenizer import CHATML, made_tokenizer
from tests.data.pairs import pair_of

EVIL = "esc \x1b[31mred\x1b[0m nul \x00 bidi \u202eabc zero\u200bwidth [bold]markup[/bold]"


@pytest.fixture
def config(tmp_path: Path) -> SFTConfig:
    made_tokenizer(CHATML).save_pretrained(tmp_path / "tokenizer")
    rows = [
        {"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "Four.\nYes."}]},
        {"messages": [{"role": "user", "content": EVIL}, {"role": "assistant", "content": EVIL}]},
        {"messages": [{"role": "user", "content": "nobody answers"}]},
        {"messages": []},
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return SFTConfig(
        model_name_or_path=str(tmp_path / "tokenizer"),
        dataset_name=str(data),
        assistant_only_loss=True,
        max_length=None,
    )


def shown(config: WholeConfig, n: int = 4, *, colour: bool = False, encoding: str = "utf-8", width: int = 400) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    show_rows(config, n, console)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_without_colour_brackets_mark_exactly_what_is_trained(config: SFTConfig) -> None:
    text = shown(config, 1)
    assert "<|im_start|>assistant⏎\n⟦Four.⏎\nYes.<|im_end|>⏎\n⟧" in text
    assert "rows.jsonl:1" in text
    assert text.count("⟦") == 2  # once in the legend


def test_an_ascii_terminal_gets_ascii(config: SFTConfig) -> None:
    assert "[[Four.\\n" in shown(config, 1, encoding="ascii")


def test_with_colour_no_brackets(config: SFTConfig) -> None:
    text = shown(config, 1, colour=True)
    assert "\x1b[1;32mFour." in text
    assert "⟦" not in text


@pytest.mark.parametrize("colour", [False, True])
def test_nothing_of_the_data_reaches_the_terminal_raw(config: SFTConfig, colour: bool) -> None:
    text = shown(config, 2, colour=colour)
    for raw in ("\x1b[31m", "\x00", "\u202e", "\u200b"):
        assert raw not in text
    for escaped in ("\\x1b[31mred", "\\x00", "\\u202e", "\\u200b", "[bold]markup[/bold]"):
        assert escaped in text


def test_bad_rows_are_shown_with_their_reason(config: SFTConfig) -> None:
    text = shown(config, 4)
    assert "no-labels" in text
    assert "empty-messages" in text


def test_what_max_length_cuts_is_counted_and_marked(config: SFTConfig) -> None:
    text = shown(config.model_copy(update={"max_length": 14}), 1)
    assert "`max_length: 14` cuts" in text
    assert "<<max_length cuts from here>>" in text
    assert "No trained token is left" in shown(config.model_copy(update={"max_length": 4}), 1)


def test_a_long_row_shows_its_beginning_and_end(config: SFTConfig, tmp_path: Path) -> None:
    long = tmp_path / "long.jsonl"
    answer = "first " + "word " * 3000 + "last"
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
    long.write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
    text = shown(config.model_copy(update={"dataset_name": str(long)}), 1)
    assert "tokens not shown" in text
    assert "first word" in text
    assert "word last<|im_end|>" in text
    assert len(text) < 6000


def test_a_pair_is_shown_side_by_side_with_what_each_trains(tmp_path: Path) -> None:
    made_tokenizer(CHATML).save_pretrained(tmp_path / "tokenizer")
    rows = [pair_of("What?", "Four.", "Five"), pair_of("What?", "Four.", "Four.")]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = shown(DPOConfig(model_name_or_path=str(tmp_path / "tokenizer"), dataset_name=str(data)))
    chosen, rejected = text.index("prompt-chosen-rejected, chosen"), text.index("prompt-chosen-rejected, rejected")
    assert "What?" in text[chosen:rejected]
    assert "assistant⏎\n⟦Four.<|im_end|>" in text[chosen:rejected]
    assert "assistant⏎\n⟦Five<|im_end|>" in text[rejected:]
    assert "chosen-equals-rejected" in text
