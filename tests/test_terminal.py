"""Promise: text from files, models and data cannot control the terminal, whoever prints it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dynotune.data.account.ledger import Ledger
from dynotune.terminal import printable_lines
from tests.tiny import chats, tiny_model, tiny_tokenizer

RAW = "\x1b]0;taken over\x07\x9b2J\r\u202e"


def raw_in(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c not in "\n"}


def said_by(code: str) -> str:
    """Its stderr, with carriage returns as they are."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment).stderr.decode()


SPEAK = f"""
import logging, sys, threading, warnings
{{guard}}
raw = {RAW!r}
logging.getLogger("transformers").warning("a model of type %s", raw)
logging.getLogger().error(raw)
try:
    raise KeyError(raw)
except KeyError:
    logging.exception("it failed")
class Odd(Exception):
    def __str__(self): return raw
thread = threading.Thread(target=lambda: (_ for _ in ()).throw(Odd()))
thread.start(); thread.join()
warnings.warn(raw)
raise Odd()
"""


def test_what_libraries_say_is_escaped() -> None:
    said = said_by(SPEAK.format(guard="from dynotune.terminal import guard; guard()"))
    assert said.count("taken over") >= 5
    assert not raw_in(said), repr(said)


def test_without_the_guard_it_is_not() -> None:
    """Negative control."""
    assert {"\x1b", "\x07"} <= raw_in(said_by(SPEAK.format(guard="")))


def test_lines_stay_lines() -> None:
    assert printable_lines("a\n\tb\x1b") == "a\n    b\\x1b"


def test_the_name_of_a_data_set_is_no_markup() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    console.print(Ledger().summary(f"held[bold]out[/bold]{RAW}"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "held[bold]out[/bold]\\x1b]0;taken" in shown
    assert "\x1b]0;" not in shown


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model whose files hold escape sequences wherever a name can stand, and data that does."""
    folder = tmp_path / "model"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    for name, more in (
        ("config.json", {"model_type": f"llama{RAW}", RAW: RAW, "architectures": [RAW]}),
        ("tokenizer_config.json", {"tokenizer_class": f"Llama{RAW}", "name_or_path": RAW}),
    ):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | more))
    rows = [{**row, f"extra{RAW}": RAW} for row in chats(6)] + [{"messages": [{"role": RAW, "content": RAW}], RAW: 1}]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("words", [["sft", "--max_steps", "2"], ["prepare", "--show", "9"]])
def test_a_hostile_model_and_data_stay_text(hostile: Path, words: list[str]) -> None:
    seen = ""
    # `prepare` needs no model, so with a tokenizer that loads it comes to the rows.
    plain = ["--tokenizer_name_or_path", str(hostile / "plain")]
    for more in [plain] if words[0] == "prepare" else [[], plain]:
        if more:
            tiny_tokenizer().save_pretrained(hostile / "plain")
        done = subprocess.run(
            [sys.executable, "-m", "dynotune", *words, "--model_name_or_path", str(hostile / "model"),
             "--dataset_name", str(hostile / "data.jsonl"), "--output_dir", str(hostile / f"run{len(more)}"), "--use_cpu",
             "--on_bad_row", "skip", *more],
            capture_output=True, env={**os.environ, "DYNOTUNE_CACHE": str(hostile / "cache"), "COLUMNS": "120"}, timeout=600,
        )  # fmt: skip
        seen += (done.stdout + done.stderr).decode("utf-8", "replace")
        assert done.returncode in (0, 2), seen[-3000:]
    assert "taken over" in seen
    assert "\x1b]" not in seen
    assert not {c for c in seen if not c.isprintable() and c not in "\n\r\t"}, repr(seen[-3000:])
    assert not [line for line in seen.split("\n") if "\r" in line and "taken over" in line]
