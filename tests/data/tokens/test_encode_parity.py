"""Promise: token ids and labels are TRL's, literally. Every test runs TRL's own preparation beside ours."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.rows import BadRow, Place, Record, Row
from dynotune.data.tokens.encode import Encoder
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer
from tests.data.trl_oracle import bundled_template, trl_prepare

FAMILIES = (
    *(
        "qwen2_5",
        "qwen3",
        "qwen3_instruct_2507",
        "qwen3_5_think",
        "qwen3_5_nothink",
        "qwen3_6",
        "qwen3_8",
        "phi3",
        "phi3_5",
    ),
    *("gptoss", "deepseek_r1_distill"),  # up to here by a training variant, from here by the prefix difference
    *("llama3", "gemma", "gemma3", "cohere", "lfm2", "lfm2_v2"),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(
        ["", " ", "\n", "  two  spaces ", "\n\nanswer\n", "<|im_end|>", "{{ 1 + 1 }}", "👩‍👩‍👧", "é\u0301"]
    ),
)
unpacked = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def dialogues(draw: Any, alternating: bool = True) -> list[dict[str, Any]]:
    turns = draw(st.integers(1, 6))
    messages = []
    for _ in range(turns):
        messages.append({"role": "user", "content": draw(texts)})
        if not alternating and draw(st.booleans()):
            messages.append({"role": "user", "content": draw(texts)})
        messages.append({"role": "assistant", "content": draw(texts)})
    return messages


def to_row(values: dict[str, Any], line: int) -> Row:
    kind = "messages" if "messages" in values else "text" if "text" in values else "prompt_completion"
    known = {key: values[key] for key in ("messages", "prompt", "completion", "text", "tools") if key in values}
    return Row(Place("rows", line), kind, chat_template_kwargs=values.get("chat_template_kwargs", {}), **known)


def assert_equal_to_trl(tokenizer: Any, rows: list[dict[str, Any]], **options: Any) -> list[Example]:
    config = DataConfig(
        assistant_only_loss=options.get("assistant_only", False), completion_only_loss=options.get("completion_only")
    )
    ours = Encoder(tokenizer, config).encode([to_row(values, line) for line, values in enumerate(rows)])
    theirs = trl_prepare(tokenizer, rows, **options)
    assert len(ours) == len(theirs)
    for row, mine, (ids, labels) in zip(rows, ours, theirs, strict=True):
        assert isinstance(mine, Example), (row, mine)
        assert mine.ids_T.tolist() == ids, row
        assert mine.labels_T.tolist() == labels, row
    return ours  # type: ignore[return-value]


@unpacked
@given(st.lists(dialogues(alternating=False), min_size=1, max_size=8))
def test_messages_have_trls_tokens_and_labels(conversations: list[Any]) -> None:
    assert_equal_to_trl(made_tokenizer(CHATML), [{"messages": messages} for messages in conversations])


@pytest.mark.parametrize("family", FAMILIES)
@unpacked
@given(st.lists(dialogues(), min_size=1, max_size=5))
def test_assistant_only_labels_are_those_of_trls_training_template(family: str, conversations: list[Any]) -> None:
    tokenizer = made_tokenizer(bundled_template(family), eos="</s>")
    assert_equal_to_trl(tokenizer, [{"messages": m} for m in conversations], assistant_only=True)


@pytest.mark.parametrize("trim_offsets", [False, True])
@unpacked
@given(st.lists(dialogues(), min_size=1, max_size=5))
def test_generation_blocks_give_trls_mask(trim_offsets: bool, conversations: list[Any]) -> None:
    for messages in conversations:  # an answer that begins with a space loses its mask in TRL: docs/templates.md
        for message in messages:
            if message["role"] == "assistant":
                message["content"] = "A" + message["content"]
    tokenizer = made_tokenizer(GENERATION, eos="</s>", trim_offsets=trim_offsets)
    assert_equal_to_trl(tokenizer, [{"messages": m} for m in conversations], assistant_only=True)


@pytest.mark.parametrize("completion_only", [None, True, False])
@pytest.mark.parametrize("adds_bos", [False, True])
@unpacked
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_prompt_and_completion_strings(completion_only: bool | None, adds_bos: bool, pairs: list[Any]) -> None:
    rows = [{"prompt": "Q" + prompt, "completion": "A" + completion} for prompt, completion in pairs]
    assert_equal_to_trl(made_tokenizer(adds_bos=adds_bos), rows, completion_only=completion_only)


@pytest.mark.parametrize("family", [None, "qwen3", "llama3", "gemma"])
@pytest.mark.parametrize("assistant_only", [False, True])
@unpacked
@given(st.lists(dialogues(), min_size=1, max_size=5))
def test_prompt_and_completion_messages(family: str | None, assistant_only: bool, conversations: list[Any]) -> None:
    tokenizer = made_tokenizer(bundled_template(family) if family else GENERATION, eos="</s>")
    rows = [{"prompt": m[:-1], "completion": m[-1:]} for m in conversations]
    assert_equal_to_trl(tokenizer, rows, assistant_only=assistant_only)


@pytest.mark.parametrize("adds_bos", [False, True])
@unpacked
@given(st.lists(texts, min_size=1, max_size=8))
def test_text_has_trls_tokens(adds_bos: bool, some: list[str]) -> None:
    rows = [{"text": "T" + text} for text in some] + [{"text": "ends already<|im_end|>"}]
    assert_equal_to_trl(made_tokenizer(adds_bos=adds_bos), rows)


@pytest.mark.parametrize("family", ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_nothink", "qwen3_6", "qwen3_8"])
@pytest.mark.parametrize("tools_as_text", [False, True])
def test_tools_calls_and_thoughts(family: str, tools_as_text: bool) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "<think>\neasy\n</think>\n\nIt is 2."},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "\nWelcome"},
    ]
    tools: Any = json.dumps(TOOLS) if tools_as_text else TOOLS
    rows = [{"messages": messages, "tools": tools, "chat_template_kwargs": {"enable_thinking": True}}]
    for assistant_only in (False, True):
        assert_equal_to_trl(made_tokenizer(bundled_template(family)), rows, assistant_only=assistant_only)


def test_a_completion_beside_a_text_column_ends_as_any_other() -> None:
    """In TRL the end token goes to the column that is not trained on: a listed difference."""
    tokenizer = made_tokenizer()
    row = {"prompt": "one", "completion": " two"}
    beside = {**row, "text": "three"}
    recognised = normalise(Record(Place("rows", 1), beside), Setting())
    assert not isinstance(recognised, BadRow)
    assert recognised[1].notices == ["several-formats"]
    (ours,) = Encoder(tokenizer, DataConfig()).encode([recognised[1]])
    assert isinstance(ours, Example)
    assert trl_prepare(tokenizer, [row])[0][0] == ours.ids_T.tolist()
    assert [*trl_prepare(tokenizer, [beside])[0][0], tokenizer.eos_token_id] == ours.ids_T.tolist()


def test_the_comparison_can_fail() -> None:
    """Negative control: another template, or another mask, is not equal."""
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    ours = Encoder(made_tokenizer(CHATML), DataConfig(assistant_only_loss=True)).encode([to_row(rows[0], 0)])[0]
    assert isinstance(ours, Example)
    ids, labels = trl_prepare(made_tokenizer(CHATML), rows)[0]
    assert ours.ids_T.tolist() == ids
    assert ours.labels_T.tolist() != labels
    assert trl_prepare(made_tokenizer(GENERATION), rows)[0][0] != ids


@pytest.mark.parametrize("name", ["tokenizers/qwen-152k", "tokenizers/olmo-50k", "tokenizers/dolma2-100k"])
def test_real_conversations_with_real_tokenizers(shared: Path, name: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / name)
    rows = _conversations(shared, 150)
    assert_equal_to_trl(tokenizer, rows)
    tokenizer.chat_template = bundled_template("qwen2_5")
    assert_equal_to_trl(tokenizer, rows, assistant_only=True)
    pairs = [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in rows]
    assert_equal_to_trl(tokenizer, pairs)
    plain = [{"prompt": r["messages"][0]["content"], "completion": r["messages"][1]["content"]} for r in rows]
    assert_equal_to_trl(tokenizer, plain)


def test_stories_with_its_own_template(stories: Path, shared: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(stories)
    rows = _conversations(shared, 100)
    assert_equal_to_trl(tokenizer, rows)
    examples = assert_equal_to_trl(tokenizer, rows, assistant_only=True)
    assert any((example.labels_T == IGNORE).any() for example in examples)


def _conversations(shared: Path, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with gzip.open(shared / "data" / "sft" / "sft_mix.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            messages = json.loads(line)["messages"]
            if {m["role"] for m in messages} == {"user", "assistant"} and len(line) < 20_000:
                rows.append({"messages": messages})
            if len(rows) == count:
                break
    return rows
