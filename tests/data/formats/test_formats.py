"""Every format is recognised row by row, and a row that has none gets the nearest guess."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.formats import messages as module
from dynotune.data.formats.messages import RefusedError, normal_messages
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.rows import BadRow, Place, Record, Row

USER, ASSISTANT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
CHAT = [USER, ASSISTANT]


def recognise(values: dict[str, Any], **setting: Any) -> tuple[str, Row]:
    found = normalise(Record(Place("f", 1), values), Setting(**setting))
    assert not isinstance(found, BadRow), found
    return found


def refused(values: dict[str, Any], **setting: Any) -> BadRow:
    found = normalise(Record(Place("f", 1), values), Setting(**setting))
    assert isinstance(found, BadRow), found
    assert found.beginning.isprintable()
    return found


def test_messages_keep_what_templates_read() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    name, row = recognise(
        {
            "id": 1,
            "messages": [USER, call, {"role": "tool", "content": "r", "tool_call_id": "1"}, ASSISTANT],
            "tools": '[{"type": "function"}]',
            "chat_template_kwargs": {"enable_thinking": False},
        }
    )
    assert (name, row.kind) == ("messages", "messages")
    assert row.messages is not None
    assert row.messages[1] == call
    assert row.messages[2]["tool_call_id"] == "1"
    assert row.tools == [{"type": "function"}]
    assert row.chat_template_kwargs == {"enable_thinking": False}
    assert row.notices == []


def test_sharegpt_becomes_messages() -> None:
    name, row = recognise(
        {
            "system": "be nice",
            "conversations": [
                {"from": "human", "value": "weather?"},
                {"from": "function_call", "value": '{"name": "w", "arguments": {"city": "Oslo"}}'},
                {"from": "observation", "value": "cold"},
                {"from": "gpt", "value": "Cold."},
            ],
        }
    )
    assert name == "sharegpt"
    assert row.messages == [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": {"city": "Oslo"}}}],
        },
        {"role": "tool", "content": "cold"},
        {"role": "assistant", "content": "Cold."},
    ]
    assert row.notices == []
    assert recognise({"conversations": CHAT})[1].messages == CHAT


def test_alpaca_follows_the_tokenizer() -> None:
    values = {"instruction": "Add {x}.", "input": "2 2", "output": "4", "system": "s", "history": [["q", "a"]]}
    name, row = recognise(values)
    assert (name, row.kind) == ("alpaca", "prompt_completion")
    assert row.prompt == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "Add {x}.\n2 2"},
    ]
    assert row.completion == [{"role": "assistant", "content": "4"}]
    plain = {"instruction": "Add {x}.", "input": "2 2", "output": "4"}
    text = recognise(plain, has_chat_template=False)[1].prompt
    assert isinstance(text, str)
    assert text.startswith("Below is an instruction that describes a task, paired with an input")
    assert text.endswith("### Instruction:\nAdd {x}.\n\n### Input:\n2 2\n\n### Response:\n")
    short = recognise({**plain, "input": ""}, has_chat_template=False)[1].prompt
    assert isinstance(short, str)
    assert "### Input" not in short
    assert refused(values, has_chat_template=False).reason == "history-needs-chat-template"


def test_prompt_and_completion_as_text_or_messages() -> None:
    name, row = recognise({"prompt": "p", "completion": "c"})
    assert (name, row.prompt, row.completion) == ("prompt-completion", "p", "c")
    assert recognise({"prompt": [USER], "completion": [ASSISTANT]})[1].completion == [ASSISTANT]
    assert refused({"prompt": "p", "completion": [ASSISTANT]}).reason == "prompt-and-completion-differ"
    assert refused({"prompt": "p", "completion": True}).reason == "content-bool"
    assert recognise({"prompt": "p", "completion": "c", "label": False})[1].notices == ["preference-label-ignored"]


def test_text_stands_where_the_configuration_says() -> None:
    assert recognise({"text": "t"})[1].text == "t"
    name, row = recognise({"body": "t", "text": "u"}, text_field="body")
    assert (name, row.text, row.notices) == ("text", "t", [])
    assert refused({"text": 3}).reason == "content-int"


def test_token_rows_are_handed_on_untouched() -> None:
    values = {"input_ids": [1, 2], "labels": [-100, 2], "position_ids": [0, 1]}
    name, row = recognise(values)
    assert (name, row.kind, row.tokens) == ("pre-tokenised", "tokens", values)


def test_where_several_formats_fit_trls_order_decides_and_it_is_said() -> None:
    assert recognise({"messages": CHAT, "text": "t"})[0] == "messages"
    assert recognise({"messages": CHAT, "prompt": "p", "completion": "c"})[0] == "prompt-completion"
    name, row = recognise({"instruction": "i", "output": "o", "text": "t"})
    assert (name, row.notices) == ("text", ["several-formats"])
    # A prompt alone is no format, so it does not stand in the way of the messages beside it.
    assert recognise({"prompt": "p", "messages": CHAT})[1].notices == []
    assert recognise({"chosen": CHAT, "rejected": CHAT, "messages": CHAT})[0] == "messages"


def test_null_columns_count_as_absent() -> None:
    assert recognise({"messages": None, "text": "t"})[0] == "text"


@pytest.mark.parametrize(
    ("values", "reason", "hint"),
    [
        ({}, "empty-object", "no columns"),
        ({"message": CHAT}, "misspelt-key", "`messages`"),
        ({"conversation": CHAT}, "misspelt-key", "`conversations`"),
        ({"Text": "t"}, "misspelt-key", "`text`"),
        ({"question": "q", "answer": "a"}, "unrecognised-format", "columns: {prompt: question, completion: answer}"),
        ({"prompt": "q", "response": "a"}, "unrecognised-format", "columns: {prompt: prompt, completion: response}"),
        ({"dialog": CHAT}, "unrecognised-format", "columns: {messages: dialog}"),
        ({"data": [{"text": "t"}]}, "unrecognised-format", "jq -c '.data[]'"),
        ({"prompt": "p"}, "missing-completion", "no `completion`"),
        ({"completion": "c"}, "missing-prompt", "no `prompt`"),
        ({"instruction": "i"}, "missing-output", "no `output`"),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "preference-row", "dynotune dpo"),
        ({"prompt": "p", "chosen": "c"}, "preference-row", "dynotune dpo"),
        ({"abc": 1, "\x1b[2J": 2}, "unrecognised-format", "abc, \\x1b[2J"),
        ({"messages": None}, "messages-null", "null"),
        ({"messages": []}, "empty-messages", "no messages"),
        ({"messages": {"0": USER}}, "messages-dict", "one object"),
        ({"messages": "user: hi"}, "messages-not-a-list", "user: hi"),
        ({"messages": "[broken"}, "messages-not-json", "should be JSON"),
        ({"messages": ["hi"]}, "message-is-not-an-object", "messages[0]"),
        ({"messages": [{"content": "x"}]}, "missing-role", "messages[0]"),
        ({"messages": [{"role": 3, "content": "x"}]}, "role-not-a-string", "3"),
        ({"messages": [USER, {"role": "assistant"}]}, "missing-content", "messages[1]"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "content-null", "messages[1]"),
        ({"messages": [USER, {"role": "assistant", "content": 1.5}]}, "content-float", "1.5"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "content-list-of-strings", "parts"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content-part-not-text", "image"),
        ({"messages": CHAT, "tools": "{"}, "tools-not-json", "tools"),
        ({"messages": CHAT, "tools": {"a": 1}}, "tools-not-a-list", "dict"),
        ({"messages": CHAT, "chat_template_kwargs": [1]}, "chat-template-kwargs-not-an-object", "list"),
        ({"conversations": [{"from": "function_call", "value": "{"}]}, "tool-arguments-not-json", "JSON"),
        ({"conversations": [{"from": "function_call", "value": "{}"}]}, "tool-call-without-name", "names no function"),
        ({"instruction": "i", "output": "o", "history": [["q"]]}, "history-not-pairs", "history[0]"),
    ],
)
def test_a_row_without_a_format_gets_a_reason_and_a_hint(values: dict[str, Any], reason: str, hint: str) -> None:
    bad = refused(values)
    assert bad.reason == reason
    assert hint in bad.detail


def test_what_is_mended_is_noticed() -> None:
    def notices(messages: Any) -> list[str]:
        return recognise({"messages": messages})[1].notices

    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    _, row = recognise({"messages": [{"role": "user", "content": parts}, ASSISTANT]})
    assert row.messages is not None
    assert (row.messages[0]["content"], row.notices) == ("a b", ["content-parts"])
    assert notices([{"role": "human", "content": "a"}, {"role": "gpt", "content": "b"}]) == ["sharegpt-role-names"] * 2
    assert notices([{"role": "User", "content": "a"}]) == ["role-case"]
    assert notices([{"role": "bot", "content": "a"}]) == ["unknown-role"]
    assert notices('[{"role": "user", "content": "a"}]') == ["messages-as-json-text"]
    assert notices([{"role": "user", "content": "a", "weight": 0}]) == ["per-message-training-key-ignored"]


def test_the_row_as_read_is_not_changed() -> None:
    """A Python user's own dictionaries must come out of training as they went in."""
    message = {"from": "human", "value": "a"}
    recognise({"conversations": [message, {"from": "gpt", "value": "b"}]})
    assert message == {"from": "human", "value": "a"}


KEYS = st.sampled_from(["role", "content", "from", "value", "name", "tool_calls", "weight", "loss", "thinking"])
VALUES = st.sampled_from(
    ["user", "assistant", "User", "gpt", "hello", "", None, 1, [], [{"type": "text", "text": "t"}], {}]
)


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=3))
def test_messages_with_nothing_to_mend_become_what_the_long_way_makes_of_them(given_messages: list[Any]) -> None:
    def become() -> tuple[Any, list[str]]:
        notices: list[str] = []
        try:
            return normal_messages(given_messages, "messages", notices), notices
        except RefusedError as error:
            return (error.reason, error.detail), notices

    short = become()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_is_normal", lambda item: False)
        assert become() == short
