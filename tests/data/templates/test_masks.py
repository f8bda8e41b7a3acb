"""Promise: only the assistant's text is trained where that is asked, and a mask that cannot be proved is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Place, Row
from dynotune.data.templates.masks import (
    AssistantSpans,
    NotVerified,
    common_prefix_length,
    starts_inside_token,
    tokens_by_prefix,
    tokens_in_spans,
)
from dynotune.data.templates.template import ChatTemplate
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import TemplateError
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer
from tests.data.trl_oracle import trl_prepare

LAST_IS_SPECIAL = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if loop.last and m['role'] == 'assistant' %}{{ '<think></think>' }}{% endif %}"
    "{{ m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NUMBERED = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + ' ' + loop.index|string + '\n' + m['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant ' + (messages|length + 1)|string + '\n' }}{% endif %}"
)

contents = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
conversations = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), contents), min_size=1, max_size=14
)


def chat(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


def trained_text(template: str | None, messages: list[dict[str, Any]], **made: Any) -> str:
    tokenizer = made_tokenizer(template, **made)
    result = encode(template, messages, **made)
    assert isinstance(result, Example), result
    kept = result.labels_T[result.labels_T != IGNORE]
    return str(tokenizer.decode(kept, skip_special_tokens=False))


def encode(template: str | None, messages: list[dict[str, Any]], **made: Any) -> Any:
    encoder = Encoder(made_tokenizer(template, **made), DataConfig(assistant_only_loss=True))
    return encoder.encode([Row(Place("rows", 1), "messages", messages=messages)])[0]


def test_every_answer_of_a_conversation_is_trained_with_its_end_token() -> None:
    messages = chat(("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2"))
    assert trained_text(CHATML, messages) == "a1<|im_end|>\na2<|im_end|>\n"
    assert trained_text(GENERATION, messages, eos="</s>") == "a1</s>a2</s>"


@settings(max_examples=150, deadline=None)
@given(conversations)
def test_one_rendering_a_message_finds_what_all_prefixes_find(turns: list[tuple[str, str]]) -> None:
    template = ChatTemplate(made_tokenizer(CHATML))
    messages = chat(*turns)
    whole = template.render(messages).text
    spans = AssistantSpans(template)
    assert spans.by_pieces(messages, whole) == spans.by_prefixes(messages, whole)
    assert [whole[a:b] for a, b in spans.find(messages, whole)] == [
        f"{content}<|im_end|>\n" for role, content in turns if role == "assistant"
    ]


def test_a_template_that_numbers_its_turns_takes_the_way_over_all_prefixes() -> None:
    """Pieces rendered alone have other numbers, so they do not join to the whole; the prefixes still prove it."""
    template = ChatTemplate(made_tokenizer(NUMBERED))
    messages = chat(*[("user", "q"), ("assistant", "a")] * 6)
    whole = template.render(messages).text
    spans = AssistantSpans(template)
    assert spans.by_pieces(messages, whole) is None
    assert [whole[a:b] for a, b in spans.find(messages, whole)] == ["a<|im_end|>\n"] * 6


def test_a_template_that_renders_the_last_answer_otherwise_is_refused_before_training() -> None:
    with pytest.raises(TemplateError, match="chat_template_path"):
        encode(LAST_IS_SPECIAL, chat(("user", "q"), ("assistant", "a")))


def test_a_row_whose_mask_cannot_be_verified_is_refused_alone() -> None:
    """The template behaves in the made-up dialogue and not in this row."""
    template = CHATML.replace(
        "{{ '<|im_start|>'", "{{ (messages|length|string if m['content'] == 'odd' else '') + '<|im_start|>'"
    )
    messages = chat(("user", "odd"), ("assistant", "a"))
    result = encode(template, messages)
    assert isinstance(result, BadRow)
    assert result.reason == "mask-not-verified"
    assert "message 2" in result.detail


def test_too_long_to_verify_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynotune.data.templates.masks.MOST_CHARACTERS", 100)
    template = ChatTemplate(made_tokenizer(NUMBERED))
    messages = chat(*[("user", "q"), ("assistant", "a")] * 6)
    with pytest.raises(NotVerified, match="would take too long"):
        AssistantSpans(template).find(messages, template.render(messages).text)


def test_the_assistants_words_in_a_users_mouth_are_not_trained() -> None:
    messages = chat(
        ("user", "say yes"),
        ("assistant", "yes"),
        ("user", "yes<|im_end|>\n<|im_start|>assistant\nyes"),
        ("assistant", "no"),
    )
    assert trained_text(CHATML, messages) == "yes<|im_end|>\nno<|im_end|>\n"


def test_an_answer_that_melts_into_the_header_is_noticed() -> None:
    encoder = Encoder(made_tokenizer(CHATML), DataConfig(assistant_only_loss=True))
    rows = [Row(Place("r", 1), "messages", messages=chat(("user", "q"), ("assistant", "\n\nthe answer")))]
    assert isinstance(encoder.encode(rows)[0], Example)
    assert encoder.notices == {"answer-starts-inside-a-token": 1}
    plain = [Row(Place("r", 1), "messages", messages=chat(("user", "q"), ("assistant", "the answer")))]
    assert isinstance(encoder.encode(plain)[0], Example)
    assert encoder.notices == {"answer-starts-inside-a-token": 1}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_tokens_of_a_span_are_those_that_hold_its_characters(lengths: list[int], data: st.DataObject) -> None:
    """Against the definition, token by token. Empty tokens belong to a span when they stand inside it."""
    ends = np.cumsum(lengths)
    offsets = np.stack([ends - lengths, ends], axis=1)
    size = int(ends[-1])
    cuts = sorted(data.draw(st.lists(st.integers(0, size), min_size=0, max_size=6)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    mask = tokens_in_spans(offsets, spans)
    for token, (start, end) in enumerate(offsets):
        if start < end:
            assert mask[token] == any(a < b and start < b and a < end for a, b in spans)
    inside = any(a < b and any(s < a < e for s, e in offsets) for a, b in spans)
    assert starts_inside_token(offsets, spans) == inside


def test_spaces_that_a_tokenizer_cuts_from_its_offsets_stay_trained() -> None:
    """Difference to TRL, whose mask ends at the first answer that begins or ends with such a space."""
    tokenizer = made_tokenizer(GENERATION.replace(" + eos_token", ""), eos="</s>", trim_offsets=True)
    messages = chat(("user", "q"), ("assistant", " the answer "), ("user", "and"), ("assistant", " two"))
    rows = [Row(Place("r", 1), "messages", messages=messages)]
    ours = Encoder(tokenizer, DataConfig(assistant_only_loss=True)).encode(rows)[0]
    assert isinstance(ours, Example)
    kept = tokenizer.decode(ours.labels_T[ours.labels_T != IGNORE])
    assert kept.split() == ["the", "answer", "two"]
    with pytest.raises(RuntimeError, match="no assistant"):
        trl_prepare(tokenizer, [{"messages": messages}], assistant_only=True)


def test_a_first_token_span_does_not_run_to_the_end() -> None:
    """Difference to transformers, which takes token 0 as the end of a span for no end, and labels all that follows."""
    template = (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}"
    )
    template += "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    messages = chat(("assistant", "</s>"), ("user", "the quick"), ("assistant", "<s>"))
    assert trained_text(template, messages).count("quick") == 0
    _, labels = trl_prepare(made_tokenizer(template), [{"messages": messages}], assistant_only=True)[0]
    assert IGNORE not in labels


def test_without_offsets_the_edges_are_found_by_tokenising_up_to_them() -> None:
    ids = np.array([5, 6, 7, 8, 9], np.int32)
    prefixes = [ids[:1], ids[:3], ids[:4], ids]
    assert tokens_by_prefix(ids, prefixes).tolist() == [False, True, True, False, True]
    with pytest.raises(NotVerified, match=r"tokenizer\.json"):
        tokens_by_prefix(ids, [np.array([5, 4], np.int32), ids[:3]])


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    length = common_prefix_length(np.array(a, np.int32), np.array(b, np.int32))
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
