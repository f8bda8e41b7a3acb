"""Every expectation of the deliberately bad files is met: a row that is `ok` trains, another is refused or noticed by
the name given here."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from dynotune.config.dpo import DPOConfig
from dynotune.config.keys.data import DataConfig
from dynotune.data import chunk, ingest
from dynotune.data.account import ledger as ledger_module
from dynotune.data.account.ledger import Ledger
from dynotune.data.ingest import load_examples
from dynotune.data.read.readers import read_records
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import DataError
from dynotune.plan.make import NO_LABELS_LEFT, trainable_spans

# How the words of expected.json (their beginning) are named here. "notice": the row trains. "bad": it does not.
# "fault": the whole file. "plan": it goes when `max_length` is applied.
NAMES: dict[str, tuple[str, str]] = {
    "invalid-utf8": ("bad", "invalid-utf8"),
    "lone-surrogate": ("bad", "lone-surrogate"),
    "bom-at-start": ("notice", "bom-at-start"),
    "wrong-encoding": ("fault", "wrong-encoding"),
    "truncated-json": ("bad", "truncated-json"),
    "truncated-gzip": ("fault", "truncated-gzip"),
    "plain text under a .gz name": ("notice", "plain-text-under-gz-name"),
    "python-repr-not-json": ("bad", "python-repr-not-json"),
    "trailing-comma": ("bad", "trailing-comma"),
    "two-objects-on-one-line": ("bad", "two-objects-on-one-line"),
    "nan-literal": ("bad", "nan-literal"),
    "duplicate-key": ("bad", "duplicate-key"),
    "line-is-not-an-object": ("bad", "line-is-not-an-object"),
    "pretty-printed JSON array": ("notice", "array-under-jsonl-name"),
    "missing-messages": ("notice", "text-row"),
    "empty-messages": ("bad", "empty-messages"),
    "missing-role": ("bad", "missing-role"),
    "missing-content": ("bad", "missing-content"),
    "messages-null": ("bad", "messages-null"),
    "messages-not-a-list": ("bad", "messages-not-a-list"),
    "empty-object": ("bad", "empty-object"),
    "misspelt-key": ("bad", "misspelt-key"),
    "content-bool": ("bad", "content-bool"),
    "content-int": ("bad", "content-int"),
    "content-null": ("bad", "content-null"),
    "content-parts": ("notice", "content-parts"),
    "content-dict": ("bad", "content-dict"),
    "content-list-of-strings": ("bad", "content-list-of-strings"),
    "messages-dict": ("bad", "messages-dict"),
    "empty-assistant": ("notice", "empty-assistant"),
    "whitespace-assistant": ("notice", "whitespace-assistant"),
    "no-assistant-turn": ("notice", "no-assistant-turn"),
    "empty-user": ("notice", "empty-user"),
    "assistant-only": ("notice", "assistant-only"),
    "empty-final-assistant": ("notice", "empty-final-assistant"),
    "invisible-assistant": ("notice", "invisible-assistant"),
    "assistant-first": ("notice", "assistant-first"),
    "two-user-turns": ("notice", "two-user-turns"),
    "two-assistant-turns": ("notice", "two-assistant-turns"),
    "system-not-first": ("notice", "system-not-first"),
    "two-system-turns": ("notice", "two-system-turns"),
    "unknown-roles (sharegpt names)": ("notice", "sharegpt-role-names"),
    "unknown-role": ("notice", "unknown-role"),
    "role-case": ("notice", "role-case"),
    "ends-with-user": ("notice", "ends-with-user"),
    "tool-result-without-call": ("notice", "tool-result-without-call"),
    "control-token-injection": ("notice", "control-token-injection"),
    "eos-in-content": ("notice", "eos-in-content"),
    "llama2-markers": ("notice", "llama2-markers"),
    "jinja-in-content": ("notice", "jinja-in-content"),
    "pad-token-in-content": ("notice", "pad-token-in-content"),
    "nul-and-terminal-escapes": ("notice", "control-characters"),
    "bidi-controls": ("notice", "bidi-controls"),
    "nfd-vs-nfc": ("notice", "not-nfc"),
    "unicode-line-separators": ("notice", "unicode-line-separators"),
    "private-use-and-noncharacters": ("notice", "private-use-or-noncharacter"),
    "alpaca-row": ("notice", "alpaca-row"),
    "sharegpt-row": ("notice", "sharegpt-row"),
    "prompt-completion-row": ("notice", "prompt-completion-row"),
    "text-row": ("notice", "text-row"),
    "preference-row": ("bad", "preference-row"),
    "question-answer-row": ("bad", "unrecognised-format"),
    "two good rows; blank lines skipped; CRLF tolerated": ("notice", "crlf"),
    "empty-file": ("fault", "empty-file"),
    "no-rows": ("fault", "no-rows"),
    "first of an exact duplicate group": ("ok", ""),
    "exact-duplicate": ("notice", "exact-duplicate"),
    "duplicate-content-different-id": ("notice", "duplicate-content"),
    "near-duplicate": ("notice", "near-duplicate"),
    "conflicting-answer": ("notice", "conflicting-answer"),
    "huge-row": ("notice", "huge-row"),
    "huge-answer": ("notice", "huge-answer"),
    "one-million-characters-without-a-space": ("notice", "no-spaces"),
    "emoji-with-joiners": ("notice", "huge-row"),
    "twenty-thousand-turns": ("notice", "many-turns"),
    "prompt about 6,000 tokens": ("plan", "no-labels-after-truncation"),
    "one-token-answer": ("notice", "one-character-answer"),
    "tool-arguments-not-json; ends without answer": ("notice", "tool-arguments-not-json"),
}

NAMES_OF_PAIRS: dict[str, tuple[str, str]] = {
    "chosen-equals-rejected": ("bad", "chosen-equals-rejected"),
    "missing-rejected": ("bad", "missing-rejected"),
    "empty-chosen": ("bad", "empty-chosen"),
    "plain-strings": ("notice", "prompt-chosen-rejected-text-row"),
    "hh-rlhf implicit prompt": ("notice", "hh-rlhf-row"),
    "implicit prompt differs between": ("bad", "prompts-differ"),
    "implicit prompt, message form": ("notice", "implicit-prompt-row"),
    "chosen far longer than max length": ("ok", ""),  # cut and counted: test_a_side_that_is_cut_is_counted
    "differs only in the last character": ("notice", "sides-nearly-equal"),
    "margin-not-a-number": ("notice", "margin-not-a-number"),
    "empty-prompt": ("bad", "empty-prompt"),
}
"""The same for rows that are read as pairs."""


def entries() -> list[Any]:
    shared = os.environ.get("DYNOTUNE_SHARED")
    path = Path(shared or "") / "data" / "nasty" / "expected.json"
    if not shared or not path.is_file():
        skip = pytest.mark.skip(reason="DYNOTUNE_SHARED does not name a folder with the shared test data")
        return [pytest.param(None, marks=skip)]
    return [
        pytest.param(entry, id=f"{entry['file']}:{entry['line']}:{entry['expect'][:24]}")
        for entry in json.loads(path.read_text())["entries"]
    ]


@dataclass
class Outcome:
    """What became of one file."""

    ledger: Ledger
    used: list[int | None]
    bad: dict[int | None, str]
    noticed: set[tuple[str, int | None]]


def every_place(ledger: Ledger, names: Iterable[str]) -> list[tuple[str, int | None]]:
    """(name, line) of all rows that these reasons or notices were given to."""
    named = [(name, place) for name in names for place in ledger.places.get(name, [])]
    return [(name, int(line) if (line := place.rpartition(":")[2]).isdigit() else None) for name, place in named]


@cache
def outcome(path: Path, model: Path, *, pairs: bool = False) -> Outcome:
    tokenizer = AutoTokenizer.from_pretrained(model)
    # Truncation is looked at where a file is about it: there only the assistant's turns have labels.
    about_truncation = path.name.startswith("no_labels_after")
    config: DataConfig = DataConfig(on_bad_row="skip", max_length=2048, assistant_only_loss=about_truncation)
    if pairs:
        config = DPOConfig(on_bad_row="skip", max_length=2048)
    witness = Ledger()
    used: list[int | None] = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            for module in (ledger_module, chunk, ingest):  # the ledger keeps the first few places; here all of them
                patch.setattr(module, "PLACES_KEPT", 10**6)
            loaded = load_examples(
                read_records(path), config, Encoder(tokenizer, config), quarantine=None, ledger=witness
            )
    except DataError as error:
        assert "no row is left" in str(error)  # noqa: PT017
    else:
        if about_truncation:
            _, kept = trainable_spans(loaded.examples, config, witness, None)
            used = [loaded.examples.places[row].line for row in kept]
        else:
            used = [place.line for place in loaded.examples.places]
    witness.check()
    bad = {
        line: name for name, line in every_place(witness, [*witness.skipped, *witness.faults]) if name != NO_LABELS_LEFT
    }
    return Outcome(witness, used, bad, set(every_place(witness, witness.notices)))


def meets(found: Outcome, line: int | None, kind: str, name: str) -> bool:
    """Whether the expectation holds, and the row's fate is the one that its kind says."""
    if kind == "fault":
        return found.bad.get(None) == name
    if kind == "bad":
        return found.bad.get(line) == name and line not in found.used
    if kind == "plan":
        return found.ledger.skipped[name] == 1 and line not in found.used
    if kind == "notice" and line is None:
        return found.ledger.notices[name] >= 1 and bool(found.used) and not found.bad
    noticed = kind == "ok" or (name, line) in found.noticed
    return noticed and line in found.used and line not in found.bad


def named(expect: str, names: dict[str, tuple[str, str]] = NAMES) -> tuple[str, str]:
    if expect == "ok" or expect.startswith("ok:"):
        return "ok", ""
    fitting = [words for words in names if expect.startswith(words)]
    return names[max(fitting, key=len)]


@pytest.mark.parametrize("entry", entries())
def test_expectation(entry: dict[str, Any], shared: Path, stories: Path) -> None:
    found = outcome(shared / "data" / "nasty" / entry["file"], stories)
    if entry["format"] == "preference":
        # DPO has its own formats. Here it is refused by name, and says where it belongs.
        assert found.bad[entry["line"]] == "preference-row"
        found = outcome(shared / "data" / "nasty" / entry["file"], stories, pairs=True)
        kind, name = named(entry["expect"], NAMES_OF_PAIRS)
        assert meets(found, entry["line"], kind, name), (kind, name, found)
        assert found.used.count(entry["line"]) in (0, 2)
        return
    kind, name = named(entry["expect"])
    assert meets(found, entry["line"], kind, name), (kind, name, found)


def test_whole_files_keep_their_good_rows(shared: Path, stories: Path) -> None:
    nasty = shared / "data" / "nasty"
    assert outcome(nasty / "crlf_and_blank_lines.jsonl", stories).used == [2, 5]
    assert outcome(nasty / "array_named_jsonl.jsonl", stories).ledger.rows_used == 2
    assert outcome(nasty / "not_really_gzip.jsonl.gz", stories).ledger.rows_used == 1
    assert outcome(nasty / "truncated.jsonl.gz", stories).ledger.rows_used > 100


def test_by_default_every_bad_file_stops(shared: Path, stories: Path) -> None:
    """`on_bad_row: error`: nothing bad gets through without being asked for."""
    config = DataConfig()
    encoder = Encoder(AutoTokenizer.from_pretrained(stories), config)
    for path in sorted((shared / "data" / "nasty").glob("*.jsonl*")):
        if path.name.startswith("huge"):
            continue
        bad = outcome(path, stories).bad
        rows = read_records(path)
        if bad:
            with pytest.raises(DataError, match=r"on_bad_row: skip|no row is left"):
                load_examples(rows, config, encoder, quarantine=None, ledger=Ledger())
        else:
            load_examples(rows, config, encoder, quarantine=None, ledger=Ledger())


def test_an_expectation_can_fail() -> None:
    """Negative control: the right name at another line, another name, and a notice on a row that is lost."""
    found = Outcome(Ledger(), [1, 2], {3: "trailing-comma"}, {("crlf", 2), ("crlf", 3)})
    assert meets(found, 3, "bad", "trailing-comma")
    assert meets(found, 2, "notice", "crlf")
    assert meets(found, 1, "ok", "")
    assert not meets(found, 3, "bad", "nan-literal")
    assert not meets(found, 2, "bad", "trailing-comma")
    assert not meets(found, 1, "notice", "crlf")
    assert not meets(found, 3, "notice", "crlf")
    assert not meets(found, 3, "ok", "")
    assert not meets(found, None, "fault", "empty-file")
