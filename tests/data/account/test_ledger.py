"""The ledger accounts for every row and token, and notices when it does not."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console

from dynotune.data.account.ledger import PLACES_KEPT, Ledger
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.examples import IGNORE, Example
from dynotune.data.places import Places
from dynotune.data.rows import BadRow, Place


def example(line: int, tokens: int, labels: int, file: str = "a.jsonl") -> Example:
    ids = np.arange(tokens, dtype=np.int32)
    labelled = np.where(ids >= tokens - labels, ids, IGNORE).astype(np.int32)
    return Example(ids, labelled, Place(file, line))


def some(*rows: Any) -> tuple[Places, NDArray[np.int64], NDArray[np.int64]]:
    """Places, tokens and label tokens of rows given as `(file, line), tokens, labels` one after the other."""
    places = Places.of(Place(*place) for place in rows[::3])
    return places, np.array(rows[1::3], np.int64), np.array(rows[2::3], np.int64)


def filled() -> Ledger:
    ledger = Ledger()
    for line, (tokens, labels) in enumerate([(10, 4), (20, 5), (30, 6)], start=1):
        one = example(line, tokens, labels)
        ledger.read(one.place)
        ledger.use(one.place, [one])
    bad = BadRow(Place("b.jsonl", 1), "trailing-comma", "")
    ledger.read(bad.place)
    ledger.refuse(bad)
    return ledger


def test_rows_and_tokens_add_up_through_loading_and_the_plan() -> None:
    ledger = filled()
    ledger.check()
    ledger.truncate(*some(("a.jsonl", 2), 8, 5))
    ledger.skip("no-labels-after-truncation", *some(("a.jsonl", 3), 30, 6))
    ledger.refuse(BadRow(Place("c.jsonl"), "truncated-gzip", ""))
    ledger.check()
    told = ledger.to_json()
    assert (told["rows_read"], told["rows_used"]) == (4, 2)
    assert told["skipped"] == {"trailing-comma": 1, "no-labels-after-truncation": 1}
    assert (told["tokens_read"], told["tokens_used"], told["tokens_truncated"], told["tokens_skipped"]) == (
        60,
        22,
        8,
        30,
    )
    assert (told["label_tokens"], told["label_tokens_truncated"], told["label_tokens_skipped"]) == (4, 5, 6)
    assert told["file_faults"] == {"truncated-gzip": 1}
    assert told["sources"]["a.jsonl"]["rows_used"] == 2
    assert told["sources"]["b.jsonl"]["skipped"] == {"trailing-comma": 1}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ledger: ledger.read(Place("a.jsonl", 9)),
        lambda ledger: ledger.refuse(BadRow(Place("a.jsonl", 9), "x", "")),
        lambda ledger: ledger.use(Place("a.jsonl", 9), [example(9, 3, 1)]),
        lambda ledger: setattr(ledger, "tokens_used", 59),
        lambda ledger: setattr(ledger.sources["a.jsonl"], "rows_used", 2),
        lambda ledger: ledger.truncate(*some(("a.jsonl", 1), 100, 0)),
    ],
)
def test_a_lost_row_or_token_is_found(spoil: object) -> None:
    """Negative control: the check can fail."""
    ledger = filled()
    ledger.check()
    assert callable(spoil)
    spoil(ledger)
    with pytest.raises(AssertionError):
        ledger.check()


def test_a_packed_row_counts_each_document() -> None:
    ledger = Ledger()
    ledger.read(Place("a", 1))
    ledger.use(Place("a", 1), [example(1, 5, 2, "a"), example(1, 7, 3, "a")])
    ledger.check()
    assert (ledger.rows_read, ledger.rows_unpacked, ledger.rows_used, ledger.tokens_used) == (1, 1, 2, 12)
    ledger.skip("no-labels-after-truncation", *some(("a", 1), 5, 2))
    ledger.check()


def test_a_label_at_the_first_position_is_no_label_token() -> None:
    ledger = Ledger()
    ledger.read(Place("a", 1))
    ledger.use(Place("a", 1), [example(1, 5, 5, "a")])
    assert ledger.label_tokens == 4


def test_places_are_few_and_counts_are_whole() -> None:
    ledger = Ledger()
    for line in range(1, 101):
        ledger.notice(["crlf", "huge-row"], Place("a", line))
    assert ledger.notices == {"crlf": 100, "huge-row": 100}
    assert ledger.places["crlf"] == [f"a:{line}" for line in range(1, PLACES_KEPT + 1)]


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    ledger = filled()
    ledger.write(tmp_path / "ledger.json")
    assert json.loads((tmp_path / "ledger.json").read_text()) == json.loads(json.dumps(ledger.to_json()))
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


def test_the_summary_shows_every_count_and_no_control_character() -> None:
    ledger = filled()
    ledger.notice(["bidi-controls"], Place("[red]\x1b[2J.jsonl", 3))
    ledger.truncate(*some(("a.jsonl", 2), 8, 5))
    text = StringIO()
    Console(file=text, width=120).print(ledger.summary("training data"))
    shown = text.getvalue()
    for expected in (
        "training data",
        "read",
        "60",
        "52",
        "truncated",
        "skipped: trailing-comma",
        "notice: bidi-controls",
    ):
        assert expected in shown
    assert "[red]\\x1b[2J.jsonl:3" in shown
    assert "\x1b" not in shown


@given(st.lists(st.tuples(st.integers(2, 30), st.integers(1, 30), st.sampled_from(["use", "refuse", "skip", "cut"]))))
def test_any_history_adds_up(history: list[tuple[int, int, str]]) -> None:
    ledger = Ledger()
    for line, (tokens, labels, fate) in enumerate(history, start=1):
        one = example(line, tokens, min(labels, tokens - 1))
        ledger.read(one.place)
        if fate == "refuse":
            ledger.refuse(BadRow(one.place, "x", ""))
            continue
        ledger.use(one.place, [one])
        if fate == "skip":
            ledger.skip("y", *some((one.place.file, line), tokens, min(labels, tokens - 1)))
        if fate == "cut":
            ledger.truncate(*some((one.place.file, line), 1, 1))
    ledger.check()
    assert ledger.rows_used == sum(fate in ("use", "cut") for _, _, fate in history)


def test_the_quarantine_is_valid_utf8_json_lines(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "run" / "quarantine.jsonl")
    assert not quarantine.path.exists()
    quarantine.write(
        BadRow(Place("a", 1), "lone-surrogate", "it holds \ud83d", "be\x1bg"), {"text": "\ud83d", "x": {1, 2}}
    )
    quarantine.write(BadRow(Place("a"), "truncated-gzip", "cut"))
    quarantine.write(BadRow(Place("a", 9), "content-bool", "d", "huge"), {"text": "x" * 2_000_000})
    first, second, third = [json.loads(line) for line in quarantine.path.read_bytes().decode("utf-8").splitlines()]
    assert (first["file"], first["line"], first["reason"], first["row"]["text"]) == ("a", 1, "lone-surrogate", "\ud83d")
    assert (second["line"], "row" in second) == (None, False)
    assert "row" not in third
    assert b"\x1b" not in quarantine.path.read_bytes()
