"""Everything remarkable about a row that trains is named, and nothing else is."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.checks import text_checks
from dynotune.data.checks.duplicates import Duplicates, RowHashes, _encoded, _near, row_hashes
from dynotune.data.checks.rows import CHECKS, row_notices
from dynotune.data.checks.text_checks import ControlTokens, notices_of_texts, text_notices
from dynotune.data.checks.view import View
from dynotune.data.rows import Place, Row

OWN = ControlTokens(frozenset({"<unk>", "<|own|>", "[gMASK]", "</eos>", "<fill>", "▁mark"}), "</eos>", "<fill>")
PLACE = Place("f", 1)


def chat(*turns: tuple[str, Any], **more: Any) -> Row:
    messages = [{"role": role, "content": content} for role, content in turns]
    messages[-1].update(more)
    return Row(PLACE, "messages", messages=messages)


U, A, S, T = ("user", "question"), ("assistant", "answer"), ("system", "s"), ("tool", "result")
CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}
BAD_CALL = {"tool_calls": [{"function": {"name": "f", "arguments": "{a: 1"}}]}


@pytest.mark.parametrize(
    ("row", "names"),
    [
        (chat(U, A), []),
        (chat(S, U, A, U, A), []),
        (chat(A, U, A), ["assistant-first"]),
        (chat(U, U, A), ["two-user-turns"]),
        (chat(U, A, A), ["two-assistant-turns"]),
        (chat(U, S, A), ["system-not-first"]),
        (chat(S, S, U, A), ["two-system-turns"]),
        (chat(U), ["no-assistant-turn"]),
        (chat(A), ["assistant-only"]),
        (chat(U, A, U), ["ends-with-user"]),
        (chat(U, T, A), ["tool-result-without-call"]),
        (chat(U, ("assistant", ""), **CALL), ["ends-with-tool-call"]),
        (chat(U, ("assistant", None), **CALL), ["ends-with-tool-call"]),
        (chat(U, ("assistant", ""), **BAD_CALL), ["ends-with-tool-call", "tool-arguments-not-json"]),
        (chat(U, ("assistant", "")), ["empty-assistant", "empty-final-assistant"]),
        (chat(U, ("assistant", ""), U, A), ["empty-assistant"]),
        (chat(U, ("assistant", " \n\t")), ["whitespace-assistant"]),
        (chat(U, ("assistant", "\u200b\u200b\ufeff")), ["invisible-assistant"]),
        (chat(("user", " "), A), ["empty-user"]),
        (chat(U, ("assistant", "7")), ["one-character-answer"]),
        (chat(*[U, A] * 500), ["many-turns"]),
        (chat(("user", "long " * 30_000), A), ["huge-row"]),
        (chat(U, ("assistant", "long " * 30_000)), ["huge-row", "huge-answer"]),
        (Row(PLACE, "text", text=" "), ["empty-text"]),
        (
            Row(PLACE, "prompt_completion", prompt="", completion=""),
            ["empty-user", "empty-assistant", "empty-final-assistant"],
        ),
        (Row(PLACE, "tokens", tokens={"input_ids": [1]}), []),
    ],
)
def test_checks_of_rows(row: Row, names: list[str]) -> None:
    assert sorted(row_notices(View(row), OWN)) == sorted(names)


def test_a_tool_result_after_its_call_is_in_order() -> None:
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", **CALL},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "done"},
    ]
    assert row_notices(View(Row(PLACE, "messages", messages=messages)), OWN) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("plain, with <b>html</b>, a[0], {json: {}} and 3 < 4", []),
        ("é, 日本語, emoji 👩‍🚀 and a tab\t\n", []),
        ("x <|im_start|>system", ["control-token-injection"]),
        ("<|anything_like_it|>", ["control-token-injection"]),
        ("<unk>", ["control-token-injection"]),
        ("[gMASK]", ["control-token-injection"]),
        ("a ▁mark b", ["control-token-injection"]),
        ("<|own|>", ["control-token-injection"]),
        ("</eos>", ["eos-in-content"]),
        ("</s>", ["eos-in-content"]),
        ("<fill>", ["pad-token-in-content"]),
        ("<|pad|>", ["pad-token-in-content"]),
        ("[INST] x [/INST] <<SYS>>", ["llama2-markers"]),
        ("{{ 7*7 }}", ["jinja-in-content"]),
        ("{% raw %}", ["jinja-in-content"]),
        ("nul \0", ["control-characters"]),
        ("\x1b[31m", ["control-characters"]),
        ("\x9b31m", ["control-characters"]),
        ("\u202eabc", ["bidi-controls"]),
        ("a\u2028b", ["unicode-line-separators"]),
        ("a\x85b", ["unicode-line-separators"]),
        ("e\u0301", ["not-nfc"]),
        ("\ue000", ["private-use-or-noncharacter"]),
        ("\uffff", ["private-use-or-noncharacter"]),
        ("\U0010ffff", ["private-use-or-noncharacter"]),
        ("x" * 10_000, ["no-spaces"]),
        ("x" * 9_999 + " " + "x" * 9_999, []),
    ],
)
def test_checks_of_texts(text: str, names: list[str]) -> None:
    assert sorted(set(text_notices(text, OWN))) == names


def test_a_token_that_is_end_and_pad_has_both_names() -> None:
    both = ControlTokens(frozenset({"<|endoftext|>"}), "<|endoftext|>", "<|endoftext|>")
    assert set(text_notices("a <|endoftext|>", both)) == {"eos-in-content", "pad-token-in-content"}


@given(st.text())
def test_text_checks_never_raise(text: str) -> None:
    assert all(isinstance(name, str) for name in text_notices(text, OWN))


def test_adding_a_check_is_adding_a_function() -> None:
    def shouting(view: Any) -> Any:
        if any(text.isupper() for text in view.texts):
            yield "shouting"

    CHECKS.append(shouting)
    try:
        assert row_notices(View(chat(("user", "WHY"), A)), OWN) == ["shouting"]
    finally:
        CHECKS.remove(shouting)
    assert row_notices(View(chat(("user", "WHY"), A)), OWN) == []


def found(*rows: tuple[Row, dict[str, Any]]) -> list[tuple[str, int | None]]:
    duplicates = Duplicates()
    for line, (row, values) in enumerate(rows, start=1):
        one = RowHashes()
        one.add(Place("f", line), row_hashes(View(row), values))
        duplicates.add(one)
    return [(name, place.line) for name, place in duplicates.found()]


def pair(question: str, answer: str, **more: Any) -> tuple[Row, dict[str, Any]]:
    row = chat(("user", question), ("assistant", answer))
    return row, {"messages": [dict(m) for m in row.messages or ()], **more}


def test_repeats_are_named_by_the_strictest_name_that_fits() -> None:
    assert found(
        pair("q", "a"), pair("q", "a"), pair("q", "a", id=1), pair(" Q", "A "), pair("q", "b"), pair("r", "a")
    ) == [("exact-duplicate", 2), ("duplicate-content", 3), ("near-duplicate", 4), ("conflicting-answer", 5)]
    assert found() == []
    assert found(pair("q", "a"), pair("r", "b"), pair("s", "a")) == []


def test_texts_and_tokens_are_compared_too() -> None:
    text = [(Row(PLACE, "text", text=t), {"text": t}) for t in ("a b", "a  b", "a b")]
    assert sorted(found(*text)) == [("exact-duplicate", 3), ("near-duplicate", 2)]
    tokens = [(Row(PLACE, "tokens", tokens={"input_ids": i}), {"input_ids": i}) for i in ([1, 2], [12], [1, 2])]
    assert found(*tokens) == [("exact-duplicate", 3)]


def test_moving_text_between_turns_is_no_duplicate() -> None:
    assert found(pair("ab", "c"), pair("a", "bc")) == []


@pytest.mark.parametrize("around", ["", "é"])
def test_every_control_character_is_noticed_in_ascii_and_other_text(around: str) -> None:
    for code in range(0xA0):
        expected = code not in (0x09, 0x0A, 0x0D, 0x85) and (code < 0x20 or code >= 0x7F)
        found = "control-characters" in list(text_notices(f"a{chr(code)}{around}", OWN))
        assert found == expected, hex(code)


REMARKABLE = ["<|im_end|>", "<|own|>", "[INST]", "{{", "}}", "{%", "%}", "\x00", "\x85", "\u2028", "\ue000", "e\u0301"]


PIECES = st.lists(st.sampled_from([*"a <|>[]\n\u0301é", *REMARKABLE]), max_size=12).map("".join)


@given(st.lists(PIECES, max_size=5))
def test_texts_that_are_looked_at_as_one_have_the_notices_of_each(texts: list[str]) -> None:
    each = [name for text in texts for name in text_notices(text, OWN)]
    assert list(notices_of_texts(texts, OWN)) == each


def test_what_only_two_texts_together_hold_is_no_notice() -> None:
    assert list(notices_of_texts(["{{", "}}"], OWN)) == []
    assert list(notices_of_texts(["e", "\u0301"], OWN)) == []
    assert list(notices_of_texts(["{{}}", "x"], OWN)) == ["jinja-in-content"]


@given(st.text("ab \n", max_size=60))
def test_a_long_run_is_found_wherever_it_begins(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_checks, "LONG_RUN", 10)
        longest = max(map(len, text.split()), default=0)
        assert ("no-spaces" in text_notices(text, OWN)) == (longest >= 10)


FOLDING = "aAzZ09 \t\n\x0b\x1c\x1e\x1f\x85\xa0\u2028\u3000éÉß\u017f\u212a\u0130\u03c2\u03c3中\U0001f600\ud800"


@given(st.text(st.sampled_from(FOLDING)))
def test_near_content_is_the_casefolded_words(text: str) -> None:
    assert _near(text, _encoded(text)) == _encoded(" ".join(text.casefold().split()))


def test_every_ascii_character_counts_in_near_content_as_python_has_it() -> None:
    for code in range(128):
        text = f"a{chr(code)}{chr(code)} {chr(code)}b"
        assert _near(text, text.encode()) == " ".join(text.casefold().split()).encode(), code


def test_rows_of_dates_and_other_objects_are_compared_too() -> None:
    first, again, other = (pair("q", "a", day=date(2026, 1, day)) for day in (1, 1, 2))
    assert found(first, again, other) == [("exact-duplicate", 2), ("duplicate-content", 3)]


def test_the_same_values_are_a_duplicate_however_objects_are_shared() -> None:
    text = "q" * 5
    row, _ = pair(text, text)
    shared = {"messages": [{"role": text, "content": text}] * 2}
    apart = {"messages": [{"role": "".join("q" * 5), "content": "".join("q" * 5)} for _ in range(2)]}
    assert found((row, shared), (row, apart)) == [("exact-duplicate", 2)]


def test_calls_and_tools_tell_rows_apart() -> None:
    def called(name: str, tools: Any = None) -> tuple[Row, dict[str, Any]]:
        row = chat(U, ("assistant", ""), tool_calls=[{"function": {"name": name, "arguments": {}}}])
        row.tools = tools
        return row, {"name": name, "tools": tools}

    assert found(called("f"), called("g")) == [("conflicting-answer", 2)]
    assert found(called("f", [{"name": "a"}]), called("f", [{"name": "b"}])) == []
