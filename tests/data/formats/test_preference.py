"""Every form of a preference row becomes prompt, chosen and rejected, and one that cannot says why by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.formats.preference import PREFERENCE_FORMATS
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.rows import BadRow, Place, Record, Row

USER, GOOD, BAD = ({"role": r, "content": c} for r, c in (("user", "2+2?"), ("assistant", "4"), ("assistant", "5")))


def found(values: dict[str, Any], **setting: Any) -> tuple[str, Row] | BadRow:
    return normalise(Record(Place("f", 1), values), Setting(pairs=True, **setting))


def recognised(values: dict[str, Any], **setting: Any) -> tuple[str, Row]:
    row = found(values, **setting)
    assert not isinstance(row, BadRow), row
    assert row[1].kind == "pair"
    return row


def refused(values: dict[str, Any]) -> BadRow:
    row = found(values)
    assert isinstance(row, BadRow), row
    assert row.detail
    assert row.beginning.isprintable()
    return row


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("prompt-chosen-rejected", {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}),
        ("prompt-chosen-rejected", {"prompt": [USER], "chosen": GOOD, "rejected": BAD}),
        ("prompt-chosen-rejected", {"prompt": "2+2?", "chosen": [GOOD], "rejected": [BAD]}),
        ("prompt-chosen-rejected", {"prompt": [USER], "chosen": "4", "rejected": "5"}),
        ("prompt-chosen-rejected", {"prompt": "2+2?", "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("prompt-chosen-rejected", {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("implicit-prompt", {"chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("implicit-prompt", {"prompt": None, "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("messages-preference", {"messages": [USER], "chosen": GOOD, "rejected": BAD}),
        ("messages-preference", {"messages": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("messages-preference", {"messages": [USER, GOOD], "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("messages-preference", {"messages": [USER, BAD], "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("prompt-chosen-rejected", {"prompt": [USER, GOOD], "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        (
            "sharegpt-preference",
            {
                "conversations": [{"from": "human", "value": "2+2?"}],
                "chosen": {"from": "gpt", "value": "4"},
                "rejected": {"from": "gpt", "value": "5"},
            },
        ),
        ("alpaca-preference", {"instruction": "2+2?", "input": "", "chosen": "4", "rejected": "5"}),
    ],
)
def test_every_conversation_becomes_the_same_pair(name: str, values: dict[str, Any]) -> None:
    form, row = recognised(values)
    assert form == name
    assert (row.prompt, row.chosen, row.rejected) == ([USER], [GOOD], [BAD])


@pytest.mark.parametrize(
    ("values", "notice"),
    [
        ({"prompt": "2+2?", "chosen": [GOOD], "rejected": [BAD]}, "prompt-as-user-turn"),
        ({"prompt": [USER], "chosen": "4", "rejected": "5"}, "answers-as-assistant-turns"),
        ({"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "prompt-repeated-in-answers"),
        ({"messages": [USER, GOOD], "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "prompt-repeated-in-answers"),
        ({"prompt": "2+2?", "chosen": "2+2? 4", "rejected": "2+2? 5"}, "prompt-repeated-in-answers"),
        ({"prompt": [USER], "chosen": [GOOD, USER, GOOD], "rejected": [BAD]}, "user-turn-in-answer"),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "margin": 2.5}, "margin-not-used"),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "margin": "high"}, "margin-not-a-number"),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "margin": True}, "margin-not-a-number"),
        ({"chosen": "Say: cat", "rejected": "Say: car"}, "prompt-ends-inside-a-word"),
    ],
)
def test_what_is_mended_or_remarkable_is_said(values: dict[str, Any], notice: str) -> None:
    assert recognised(values)[1].notices == [notice]


def test_nothing_is_said_of_an_ordinary_row() -> None:
    """Negative control of the notices."""
    assert recognised({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD], "margin": None})[1].notices == []
    assert recognised({"chosen": "Say: cat", "rejected": "Say: dog"})[1].notices == []


def test_text_stays_text() -> None:
    form, row = recognised({"prompt": "Q ", "chosen": "a", "rejected": "b"})
    assert (form, row.prompt, row.chosen, row.rejected) == ("prompt-chosen-rejected-text", "Q ", "a", "b")


def test_a_prompt_that_both_texts_repeat_is_taken_once() -> None:
    asked = "Human: 2+2?\nAssistant:"
    _, row = recognised({"prompt": asked, "chosen": asked + " 4", "rejected": asked + " 5"})
    assert (row.prompt, row.chosen, row.rejected) == (asked, " 4", " 5")


@pytest.mark.parametrize(("chosen", "rejected"), [("ha!", "ho"), ("haha", "haste"), ("ha", "ha ha")])
def test_answers_that_only_begin_like_the_prompt_stay_whole(chosen: str, rejected: str) -> None:
    _, row = recognised({"prompt": "ha", "chosen": chosen, "rejected": rejected})
    assert (row.prompt, row.chosen, row.rejected, row.notices) == ("ha", chosen, rejected, [])


def test_a_repeated_prompt_need_not_repeat_its_system() -> None:
    conversation = {"conversations": [USER], "system": "s", "chosen": [USER, GOOD], "rejected": [USER, BAD]}
    _, row = recognised(conversation)
    assert (row.prompt, row.chosen, row.rejected) == ([{"role": "system", "content": "s"}, USER], [GOOD], [BAD])


def test_the_prompt_is_not_cut_to_what_asks_nothing() -> None:
    system = {"role": "system", "content": "s"}
    _, row = recognised({"prompt": [system, GOOD], "chosen": [system, USER, GOOD], "rejected": [system, USER, BAD]})
    assert row.prompt == [system, GOOD]


def test_a_prompt_with_any_content_is_one() -> None:
    """Negative control of `empty-prompt`: a question in `input`, and a call without content."""
    assert recognised({"instruction": "", "input": "2+2?", "chosen": "4", "rejected": "5"})[1].prompt == [USER]
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {}}}]}
    assert recognised({"prompt": [call], "chosen": [GOOD], "rejected": [BAD]})


def test_alpaca_without_a_chat_template_is_alpacas_own_text() -> None:
    _, row = recognised(
        {"instruction": "Add.", "input": "2 2", "chosen": "4", "rejected": "5"}, has_chat_template=False
    )
    assert isinstance(row.prompt, str)
    assert row.prompt.endswith("### Input:\n2 2\n\n### Response:\n")
    assert (row.chosen, row.rejected) == ("4", "5")


def test_systems_tools_and_variables_come_along() -> None:
    values = {
        "system": "Be brief.",
        "conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "?"}],
        "chosen": {"from": "gpt", "value": "4"},
        "rejected": {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2}}'},
        "tools": '[{"name": "add"}]',
        "chat_template_kwargs": {"thinking": True},
    }
    _, row = recognised(values)
    assert isinstance(row.prompt, list)
    assert isinstance(row.rejected, list)
    assert [turn["role"] for turn in row.prompt] == ["system", "user", "assistant"]
    assert row.rejected[0]["tool_calls"][0]["function"]["name"] == "add"
    assert row.tools == [{"name": "add"}]
    assert row.chat_template_kwargs == {"thinking": True}


def test_a_transcript_ends_its_prompt_at_the_last_marker_however_answers_begin() -> None:
    turns = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Sum?\n\nAssistant:"
    form, row = recognised({"chosen": turns + " I think 4", "rejected": turns + " I think 5"})
    assert (form, row.prompt, row.chosen, row.rejected) == ("hh-rlhf", turns, " I think 4", " I think 5")


@pytest.mark.parametrize(
    ("reason", "values"),
    [
        ("chosen-equals-rejected", {"prompt": [USER], "chosen": [GOOD], "rejected": [GOOD]}),
        ("chosen-equals-rejected", {"prompt": "Q", "chosen": "a", "rejected": "a"}),
        ("chosen-equals-rejected", {"chosen": [USER, GOOD], "rejected": [USER, GOOD]}),
        ("chosen-equals-rejected", {"chosen": "Q a", "rejected": "Q a"}),
        ("missing-rejected", {"prompt": [USER], "chosen": [GOOD]}),
        ("missing-rejected", {"prompt": [USER], "chosen": [GOOD], "rejected": None}),
        ("missing-chosen", {"prompt": [USER], "rejected": [GOOD]}),
        ("empty-chosen", {"prompt": [USER], "chosen": [{"role": "assistant", "content": ""}], "rejected": [BAD]}),
        ("empty-rejected", {"prompt": [USER], "chosen": [GOOD], "rejected": []}),
        ("empty-rejected", {"prompt": "Q", "chosen": "a", "rejected": ""}),
        ("empty-prompt", {"prompt": "", "chosen": "a", "rejected": "b"}),
        ("empty-prompt", {"prompt": [], "chosen": [GOOD], "rejected": [BAD]}),
        ("empty-prompt", {"prompt": "   ", "chosen": "a", "rejected": "b"}),
        ("empty-prompt", {"prompt": [{**USER, "content": ""}], "chosen": [GOOD], "rejected": [BAD]}),
        ("empty-prompt", {"messages": [{**USER, "content": " \n"}], "chosen": GOOD, "rejected": BAD}),
        ("empty-prompt", {"chosen": [{**USER, "content": " "}, GOOD], "rejected": [{**USER, "content": " "}, BAD]}),
        ("empty-prompt", {"instruction": "", "chosen": "a", "rejected": "b"}),
        ("empty-prompt", {"instruction": " ", "input": "", "chosen": "a", "rejected": "b"}),
        ("empty-prompt", {"chosen": "\n\nHuman: \n\nAssistant: a", "rejected": "\n\nHuman: \n\nAssistant: b"}),
        ("empty-chosen", {"prompt": "Q", "chosen": "  ", "rejected": "b"}),
        ("empty-rejected", {"prompt": [USER], "chosen": [GOOD], "rejected": [{**BAD, "content": "\n"}]}),
        ("missing-prompt", {"chosen": "\n\na", "rejected": "\n\nb"}),
        ("chosen-ends-wrongly", {"prompt": [USER], "chosen": [GOOD, USER], "rejected": [BAD]}),
        ("rejected-ends-wrongly", {"chosen": [USER, GOOD], "rejected": [USER]}),
        ("prompts-differ", {"chosen": [USER, GOOD], "rejected": [{**USER, "content": "3+3?"}, BAD]}),
        (
            "prompts-differ",
            {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD, {**USER, "content": "?"}, BAD]},
        ),
        ("prompts-differ", {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [BAD]}),
        ("prompts-differ", {"messages": [USER], "chosen": [GOOD], "rejected": [USER, BAD]}),
        ("answer-in-prompt", {"messages": [USER, GOOD], "chosen": [GOOD], "rejected": [BAD]}),
        ("answer-in-prompt", {"prompt": [USER, BAD], "chosen": "4", "rejected": "5"}),
        ("missing-prompt", {"chosen": [GOOD], "rejected": [BAD]}),
        ("missing-prompt", {"chosen": "a", "rejected": "b"}),
        ("missing-prompt", {"chosen": " a", "rejected": " b"}),
        ("sides-of-two-kinds", {"prompt": [USER], "chosen": [GOOD], "rejected": "5"}),
        ("sides-of-two-kinds", {"chosen": [USER, GOOD], "rejected": "5"}),
        ("prompt-not-in-conversation", {"prompt": "Hm", "chosen": [USER, GOOD], "rejected": [USER, BAD]}),
        ("prompts-differ", {"chosen": "\n\nHuman: a\n\nAssistant: c", "rejected": "\n\nHuman: b\n\nAssistant: d"}),
        ("empty-rejected", {"chosen": "\n\nHuman: a\n\nAssistant: c", "rejected": "\n\nHuman: a\n\nAssistant: "}),
        (
            "rejected-ends-wrongly",
            {"chosen": "\n\nHuman: a\n\nAssistant: c", "rejected": "\n\nHuman: a\n\nAssistant: c\n\nHuman: d"},
        ),
        ("content-bool", {"prompt": "Q", "chosen": True, "rejected": "b"}),
        ("history-not-pairs", {"instruction": "Q", "history": True, "chosen": "a", "rejected": "b"}),
        ("unrecognised-format", {"question": "Q", "chosen_response": "a", "rejected_response": "b"}),
        ("misspelt-key", {"prompt": "Q", "chosen": "a", "rejcted": "b"}),
        ("unpaired-preference", {"prompt": "Q", "completion": "a", "label": True}),
        ("not-a-preference", {"messages": [USER, GOOD]}),
        ("empty-object", {}),
    ],
)
def test_what_is_no_pair_is_refused_by_name(reason: str, values: dict[str, Any]) -> None:
    assert refused(values).reason == reason


def test_the_way_out_is_a_line_to_copy() -> None:
    detail = refused({"question": "Q", "chosen_response": "a", "rejected_response": "b"}).detail
    assert "`columns: {prompt: question, chosen: chosen_response, rejected: rejected_response}`" in detail
    assert "dynotune sft" in refused({"messages": [USER, GOOD]}).detail


@pytest.mark.parametrize("column", ["question", "query", "input", "Question", "Instruction", "promt", "Prompt"])
@pytest.mark.parametrize(
    "sides",
    [
        {"chosen": "Paris", "rejected": "Prague"},
        {"chosen": "Paris", "rejected": "Lyon"},
        {"chosen": [GOOD], "rejected": [BAD]},
    ],
)
def test_a_question_in_another_column_is_never_dropped(column: str, sides: dict[str, Any]) -> None:
    bad = refused({column: "Capital of France?", **sides})
    assert bad.reason == "missing-prompt"
    assert f"`columns: {{prompt: {column}}}`" in bad.detail
    assert recognised({"prompt": "Capital of France?", **sides})  # what the line makes of it


@pytest.mark.parametrize(
    "more", [{"source": "web"}, {"question": None}, {"question": " "}, {"input": ""}, {"query": 7}]
)
def test_columns_that_ask_nothing_leave_the_implicit_prompt(more: dict[str, Any]) -> None:
    """Negative control of the refusal."""
    assert recognised({"chosen": "Say: cat", "rejected": "Say: dog", **more})[1].prompt == "Say:"


def test_whole_conversations_need_no_other_column() -> None:
    assert recognised({"question": "2+2?", "chosen": [USER, GOOD], "rejected": [USER, BAD]})[0] == "implicit-prompt"
    turns = "\n\nHuman: 2+2?\n\nAssistant:"
    assert recognised({"question": "2+2?", "chosen": turns + " 4", "rejected": turns + " 5"})[0] == "hh-rlhf"


def test_formats_of_pairs_and_of_examples_are_kept_apart() -> None:
    values = {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}
    row = normalise(Record(Place("f", 1), values), Setting())
    assert isinstance(row, BadRow)
    assert row.reason == "preference-row"


words = st.lists(st.sampled_from(["a", "b", " ", "  ", "\n", "ä"]), max_size=8).map("".join)


@given(words, words, words)
def test_a_shared_beginning_is_cut_where_trl_cuts_it(shared: str, chosen: str, rejected: str) -> None:
    extract_prompt = pytest.importorskip("trl.data_utils").extract_prompt
    values = {"chosen": shared + chosen, "rejected": shared + rejected}
    row = found(values)
    if isinstance(row, BadRow):
        assert row.reason in ("missing-prompt", "chosen-equals-rejected", "empty-chosen", "empty-rejected")
        pieces = (values["chosen"][:end] for end in range(min(map(len, values.values()))))
        alike = [piece for piece in pieces if values["rejected"].startswith(piece)]
        assert row.reason != "missing-prompt" or not alike[-1].strip()
        return
    theirs = extract_prompt(values)
    assert {"prompt": row[1].prompt, "chosen": row[1].chosen, "rejected": row[1].rejected} == theirs


@given(
    st.lists(st.sampled_from([USER, GOOD, BAD]), max_size=5), st.lists(st.sampled_from([USER, GOOD, BAD]), max_size=5)
)
def test_shared_turns_are_parted_as_trl_parts_them(chosen: list[Any], rejected: list[Any]) -> None:
    extract_prompt = pytest.importorskip("trl.data_utils").extract_prompt
    row = found({"chosen": chosen, "rejected": rejected})
    if not isinstance(row, BadRow):
        theirs = extract_prompt({"chosen": chosen, "rejected": rejected})
        assert {"prompt": row[1].prompt, "chosen": row[1].chosen, "rejected": row[1].rejected} == theirs


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "from"]), inner),
    max_leaves=6,
)
columns = st.sampled_from(
    ["prompt", "chosen", "rejected", "conversations", "messages", "instruction", "margin", "tools"]
)


@given(st.dictionaries(columns, json_values))
def test_no_row_is_so_odd_that_it_stops_the_reader(values: dict[str, Any]) -> None:
    row = found(values)
    assert isinstance(row, BadRow) or row[0] in PREFERENCE_FORMATS
