"""Promise: the tokens and labels of a pair are TRL's, literally. Every test runs TRL's own preparation beside ours."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynotune.config.dpo import DPOConfig
from dynotune.data.examples import IGNORE, Example
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.rows import BadRow, Place, Record, Row
from dynotune.data.tokens.encode import Encoder
from dynotune.data.tokens.pairs import joined, sides_of
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer
from tests.data.pairs import pair_of
from tests.data.trl_oracle import bundled_template, trl_prepare_pairs

TRIMMING = CHATML.replace("(m['content'] or '')", "m['content'] | trim")
THOUGHTFUL = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n\n</think>\n' }}{% endif")
"""Its generation prompt holds what the whole conversation does not."""

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.sampled_from([" ", "\n", "  two  spaces ", "\n\nanswer\n", "<|im_end|>", "{{ 1 + 1 }}", "👩‍👩‍👧", "é\u0301"]),
)
questions = texts.filter(str.strip)
unpacked = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def encoded(tokenizer: Any, rows: list[dict[str, Any]]) -> tuple[list[Any], Encoder]:
    encoder = Encoder(tokenizer, DPOConfig())
    normal: list[Row] = []
    for line, values in enumerate(rows):
        found = normalise(Record(Place("rows", line), values), Setting(pairs=True))
        assert not isinstance(found, BadRow), found
        normal.append(found[1])
    return encoder.encode(normal), encoder


def in_parts(sides: list[Example]) -> tuple[list[int], list[int], list[int]]:
    """Prompt, chosen and rejected as TRL gives them, and proof that labels cover the answers and nothing else."""
    chosen, rejected = sides
    start = int((chosen.labels_T != IGNORE).argmax())
    for side in sides:
        assert (side.labels_T[:start] == IGNORE).all()
        assert side.labels_T[start:].tolist() == side.ids_T[start:].tolist()
    assert chosen.ids_T[:start].tolist() == rejected.ids_T[:start].tolist()
    return chosen.ids_T[:start].tolist(), chosen.ids_T[start:].tolist(), rejected.ids_T[start:].tolist()


def assert_equal_to_trl(tokenizer: Any, rows: list[dict[str, Any]]) -> Encoder:
    ours, encoder = encoded(tokenizer, rows)
    for row, mine, theirs in zip(rows, ours, trl_prepare_pairs(tokenizer, rows), strict=True):
        assert isinstance(mine, list), (row, mine)
        assert in_parts(mine) == theirs, row
    return encoder


@pytest.mark.parametrize("family", ["chatml", "thoughtful", "qwen3", "llama3", "gemma"])
@unpacked
@given(st.lists(st.tuples(questions, texts), min_size=1, max_size=6))
def test_messages_have_trls_tokens(family: str, pairs: list[Any]) -> None:
    template = {"chatml": CHATML, "thoughtful": THOUGHTFUL}.get(family) or bundled_template(family)
    rows = [pair_of(prompt, "A" + answer, "B" + answer) for prompt, answer in pairs]
    assert_equal_to_trl(made_tokenizer(template, eos="</s>"), rows)


@pytest.mark.parametrize("adds_bos", [False, True])
@unpacked
@given(st.lists(st.tuples(questions, texts, texts), min_size=1, max_size=6))
def test_text_has_trls_tokens_and_end(adds_bos: bool, some: list[Any]) -> None:
    rows = [{"prompt": p, "chosen": "x" + a, "rejected": "y" + b} for p, a, b in some]
    rows.append({"prompt": "ends already", "chosen": "a<|im_end|>", "rejected": "b"})
    assert_equal_to_trl(made_tokenizer(adds_bos=adds_bos), rows)


def test_a_prompt_without_a_column_is_trls() -> None:
    turns = [{"role": r, "content": c} for r, c in (("user", "Hi"), ("assistant", "Ho"), ("user", "2+2?"))]
    sides = {s: [*turns, {"role": "assistant", "content": c}] for s, c in (("chosen", "4"), ("rejected", "5"))}
    assert_equal_to_trl(made_tokenizer(), [sides])
    assert_equal_to_trl(made_tokenizer(), [{"chosen": "Say: cat", "rejected": "Say: dog"}])
    transcript = "\n\nHuman: Name a colour.\n\nAssistant:"
    assert_equal_to_trl(made_tokenizer(), [{"chosen": transcript + " Blue.", "rejected": transcript + " No."}])


def test_difference_a_transcripts_answer_is_whole_where_both_begin_alike() -> None:
    """Listed in docs/preference-data.md: TRL leaves out of the loss what both answers begin with."""
    row = {s: f"\n\nHuman: Sum?\n\nAssistant: I think {a}" for s, a in (("chosen", "4"), ("rejected", "5"))}
    tokenizer = made_tokenizer()
    (mine,), _ = encoded(tokenizer, [row])
    _, chosen, _ = in_parts(mine)
    assert tokenizer.decode(chosen) == " I think 4<|im_end|>"
    theirs = trl_prepare_pairs(tokenizer, [row])[0]
    assert tokenizer.decode(theirs[1]) == " 4<|im_end|>"
    assert theirs[0] + theirs[1] == mine[0].ids_T.tolist()  # the same tokens; the label mask differs


def test_tools_and_variables_reach_the_template() -> None:
    tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}]
    rows = [pair_of("1+1?", "2", "3", tools=json.dumps(tools), chat_template_kwargs={"enable_thinking": False})]
    tokenizer = made_tokenizer(bundled_template("qwen3"))
    assert_equal_to_trl(tokenizer, rows)
    plain, _ = encoded(tokenizer, [pair_of("1+1?", "2", "3")])
    with_tools, _ = encoded(tokenizer, rows)
    assert len(plain[0][0].ids_T) < len(with_tools[0][0].ids_T)


def test_both_answers_begin_where_the_first_leaves_the_prompt() -> None:
    """A template that drops the generation prompt's thought, and text whose tokens merge over the boundary."""
    encoder = assert_equal_to_trl(made_tokenizer(THOUGHTFUL), [pair_of("Q", "<think>\n\n</think>\nA", "B")])
    assert encoder.notices["prompt-not-a-prefix"] == 1  # once a pair
    merging = [{"prompt": "two plus fo", "chosen": "ur", "rejected": "x"}]
    assert_equal_to_trl(made_tokenizer(), merging)


def test_sides_that_the_template_makes_equal_are_refused() -> None:
    """Where TRL trains on a pair without a difference."""
    (bad,), _ = encoded(made_tokenizer(TRIMMING), [pair_of("Q", "Blue. ", "Blue.")])
    assert isinstance(bad, BadRow)
    assert bad.reason == "chosen-equals-rejected"
    assert "same tokens" in bad.detail


def test_one_bad_side_makes_a_bad_pair_that_is_counted_by_its_reason_alone() -> None:
    row = pair_of("Q", "A", "\ud800")
    (bad,), encoder = encoded(made_tokenizer(THOUGHTFUL), [row])
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.detail[:11]) == ("lone-surrogate", "`rejected`:")
    assert not encoder.notices


def test_a_prompt_is_rendered_and_tokenised_once_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    renders: list[bool] = []
    encoder = Encoder(made_tokenizer(), DPOConfig())
    _ = encoder.template_report
    real = encoder.template.render

    def counted(*given: Any, **named: Any) -> Any:
        renders.append(named.get("add_generation_prompt", False))
        return real(*given, **named)

    monkeypatch.setattr(encoder.template, "render", counted)
    rows = [normalise(Record(Place("r", n), pair_of(f"Q{n}", "A", "B")), Setting(pairs=True)) for n in range(3)]
    encoder.encode([found[1] for found in rows if not isinstance(found, BadRow)])
    assert (renders.count(True), renders.count(False)) == (3, 6)


def test_sides_share_what_is_the_pairs() -> None:
    row = Row(Place("r", 1), "pair", prompt="Q", chosen="a", rejected="b", notices=["n"])
    chosen, rejected = sides_of(row)
    assert chosen.prompt is rejected.prompt
    assert (chosen.completion, rejected.completion, chosen.notices, rejected.notices) == ("a", "b", ["n"], [])
    assert sides_of(chosen) == (chosen,)


def test_the_comparison_can_fail() -> None:
    """Negative control: another template, and a label mask that reaches into the prompt, are not equal."""
    rows = [pair_of("Q", "A", "B")]
    ours, _ = encoded(made_tokenizer(CHATML), rows)
    assert in_parts(ours[0]) != trl_prepare_pairs(made_tokenizer(GENERATION), rows)[0]
    chosen, rejected = ours[0]
    moved = Example(chosen.ids_T, chosen.ids_T, chosen.place)
    row = Row(chosen.place, "pair", prompt="Q", chosen="A", rejected="B")
    assert in_parts(joined(row, moved, rejected)) != trl_prepare_pairs(made_tokenizer(CHATML), rows)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tokenizers/qwen-152k", "tokenizers/olmo-50k"])
def test_real_pairs_with_real_tokenizers(shared: Path, name: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / name)
    with gzip.open(shared / "data" / "preference" / "preference_mix.jsonl.gz", "rt", encoding="utf-8") as lines:
        every = [json.loads(line) for number, line in enumerate(lines) if number % 160 == 0]
    rows = [{key: row[key] for key in ("prompt", "chosen", "rejected")} for row in every]
    assert_equal_to_trl(tokenizer, rows)
    tokenizer.chat_template = bundled_template("qwen3")
    assert_equal_to_trl(tokenizer, rows)
    plain = [{key: "\n".join(turn["content"] for turn in row[key]) for key in row} for row in rows]
    assert_equal_to_trl(tokenizer, [row for row in plain if row["chosen"] and row["rejected"]])
