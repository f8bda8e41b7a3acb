"""Promise: a template's faults are found before training, and a hostile template or row can do nothing."""

from typing import Any

import pytest

from dynotune.config.keys.data import DataConfig
from dynotune.data.examples import Example
from dynotune.data.rows import BadRow, Place, Row
from dynotune.data.templates import template as template_module
from dynotune.data.templates.probe import probe
from dynotune.data.templates.template import REFUSALS, ChatTemplate
from dynotune.data.templates.training_templates import training_variant
from dynotune.data.tokens.encode import Encoder
from dynotune.errors import TemplateError
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer
from tests.data.trl_oracle import bundled_template

CONVERSATION = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def names(template: str, assistant_only: bool = False, **made: Any) -> set[str]:
    made_template = ChatTemplate(made_tokenizer(template, **made), for_assistant_masks=assistant_only)
    return {finding.name for finding in probe(made_template, {}, assistant_only=assistant_only).findings}


def encode(encoder: Encoder, **values: Any) -> Any:
    return encoder.encode([Row(Place("rows", 1), "messages", **values)])[0]


def test_no_template_says_how_to_give_one() -> None:
    encoder = Encoder(made_tokenizer(None), DataConfig())
    with pytest.raises(TemplateError, match=r"chat_template_path.*\.jinja"):
        encode(encoder, messages=CONVERSATION)


def test_text_rows_need_no_template() -> None:
    rows = [Row(Place("rows", 1), "text", text="some text")]
    assert isinstance(Encoder(made_tokenizer(None), DataConfig()).encode(rows)[0], Example)


def test_a_syntax_error_is_reported_with_its_line() -> None:
    with pytest.raises(TemplateError, match="syntax error in line 2"):
        encode(Encoder(made_tokenizer("{% if a %}\n{% endfor %}"), DataConfig()), messages=CONVERSATION)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ ('%s' | format).__class__.__base__ }}",
    ],
)
def test_a_hostile_template_is_stopped_by_the_sandbox(attack: str) -> None:
    template = ChatTemplate(made_tokenizer(attack))
    with pytest.raises(REFUSALS):
        template.render(CONVERSATION)
    result = encode(Encoder(made_tokenizer(attack), DataConfig()), messages=CONVERSATION)
    assert isinstance(result, BadRow)
    assert result.reason == "template-refused"


def test_the_sandbox_test_can_fail() -> None:
    """Negative control: outside a sandbox the first attack succeeds."""
    import jinja2

    assert "object" in jinja2.Template("{{ messages.__class__.__mro__ }}").render(messages=[])


def test_jinja_in_a_message_stays_text() -> None:
    evil = "{{ 6 * 7 }}{% for i in range(3) %}x{% endfor %}{# gone #}"
    text = ChatTemplate(made_tokenizer()).render([{"role": "user", "content": evil}]).text
    assert evil in text
    assert "42" not in text


def test_a_special_token_that_the_tokenizer_lacks_is_no_fault_of_the_row() -> None:
    for token, remedy in (("eos", "set `eos_token`"), ("bos", "in its tokenizer_config.json")):
        undefined = made_tokenizer(f"{{% for m in messages %}}{{{{ m['content'] + {token}_token }}}}{{% endfor %}}")
        setattr(undefined, f"{token}_token", None)
        result = encode(Encoder(undefined, DataConfig()), messages=CONVERSATION)
        assert isinstance(result, BadRow)
        assert "the tokenizer has no such token" in result.detail
        assert result.detail.endswith(remedy)


def test_a_row_that_the_template_refuses_is_bad_with_its_message() -> None:
    gemma = made_tokenizer(bundled_template("gemma"))
    result = encode(Encoder(gemma, DataConfig()), messages=[{"role": "system", "content": "s"}, *CONVERSATION])
    assert isinstance(result, BadRow)
    assert (result.reason, "System role not supported" in result.detail) == ("template-refused", True)


def test_dropped_tools_and_calls_are_found_and_counted_for_the_rows_that_have_them() -> None:
    assert {"template-drops-tools", "template-drops-tool-calls"} <= names(CHATML)
    assert not {"template-drops-tools", "template-drops-tool-calls"} & names(bundled_template("qwen2_5"))
    encoder = Encoder(made_tokenizer(), DataConfig())
    encode(encoder, messages=CONVERSATION)
    assert not encoder.notices
    assert encoder.report == []
    encode(encoder, messages=CONVERSATION, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    assert encoder.notices == {"template-drops-tools": 1}
    assert "chat_template_path" in encoder.report[0]


def test_an_end_token_that_is_never_trained_is_found() -> None:
    endless = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    outside = GENERATION.replace(" + eos_token }}{% endgeneration %}", " }}{% endgeneration %}{{ eos_token }}")
    between = "{% for m in messages %}{{ m['role'] + m['content'] }}"
    between += "{{ '' if loop.last else '<|im_end|>' }}{% endfor %}"
    assert "end-token-never-trained" in names(endless)
    assert "end-token-never-trained" in names(between)
    assert "end-token-never-trained" in names(outside, assistant_only=True, eos="</s>")
    assert "end-token-never-trained" not in names(outside, eos="</s>")  # everything is trained then
    assert "end-token-never-trained" not in names(GENERATION, assistant_only=True, eos="</s>")


def test_an_end_of_turn_that_is_not_the_end_token_is_found() -> None:
    assert "end-token-is-not-eos" in names(CHATML, eos="</s>")
    assert "end-token-is-not-eos" not in names(CHATML, eos="<|im_end|>")


def test_doubled_bos_is_found() -> None:
    assert "doubled-bos-in-template" in names("{{ bos_token + bos_token }}" + CHATML)
    assert "template-without-bos" in names(CHATML, adds_bos=True)
    assert "template-without-bos" not in names("{{ bos_token }}" + CHATML, adds_bos=True)
    encoder = Encoder(made_tokenizer(adds_bos=True), DataConfig())
    encoder.encode([Row(Place("r", i), "text", text=text) for i, text in enumerate(["plain", "<s>rendered before"])])
    assert encoder.notices == {"doubled-bos": 1}


def test_what_a_template_does_to_the_text_is_noticed() -> None:
    assert "template-strips-earlier-reasoning" in names(bundled_template("qwen3"))
    assert "template-strips-reasoning" in names(bundled_template("deepseek_r1_distill"))
    encoder = Encoder(made_tokenizer(bundled_template("llama3"), eos="<|eot_id|>"), DataConfig())
    encode(encoder, messages=[{"role": "user", "content": " spaced "}, {"role": "assistant", "content": "a"}])
    assert encoder.notices == {"template-trims-content": 1}
    deaf = "{% for m in messages if m['role'] != 'system' %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"
    encoder = Encoder(made_tokenizer(deaf), DataConfig())
    encode(encoder, messages=[{"role": "system", "content": "unheard"}, *CONVERSATION])
    assert encoder.notices == {"template-drops-system-content": 1}


def test_content_parts_that_would_be_printed_as_python_are_refused() -> None:
    template = "{% for m in messages %}{{ m['content'] | trim + '<|im_end|>' }}{% endfor %}"
    parts = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}, CONVERSATION[1]]
    result = encode(Encoder(made_tokenizer(template), DataConfig()), messages=parts)
    assert isinstance(result, BadRow)
    assert result.reason == "content-parts-not-rendered"


def test_named_templates() -> None:
    """`tool_use` is taken where a row has tools, else `default`; a set without a default is refused."""
    tokenizer = made_tokenizer()
    tokenizer.chat_template = {"default": CHATML, "tool_use": "T{{ tools|length }}" + CHATML}
    template = ChatTemplate(tokenizer)
    assert template.render(CONVERSATION).text.startswith("<|im_start|>")
    assert template.render(CONVERSATION, tools=[{"a": 1}]).text.startswith("T1")
    tokenizer.chat_template = {"rag": CHATML}
    with pytest.raises(TemplateError, match="rag"):
        ChatTemplate(tokenizer)


def test_row_variables_win_over_the_configurations() -> None:
    tokenizer = made_tokenizer("{{ mood }}" + CHATML)
    encoder = Encoder(tokenizer, DataConfig(chat_template_kwargs={"mood": "calm"}))
    plain = encode(encoder, messages=CONVERSATION)
    own = encode(encoder, messages=CONVERSATION, chat_template_kwargs={"mood": "wild"})
    assert tokenizer.decode(plain.ids_T).startswith("calm")
    assert tokenizer.decode(own.ids_T).startswith("wild")


def test_a_changed_template_is_never_edited() -> None:
    original = bundled_template("qwen3")
    variant = training_variant(original)
    assert variant is not None
    assert variant[0] == "Qwen3"
    assert training_variant(original + " ") is None
    assert training_variant(variant[1]) is None


@pytest.mark.parametrize(
    "own",
    [
        {"chat_template": "PWNED{{ eos_token }}"},
        {"conversations": [[{"role": "user", "content": "PWNED"}]]},
        {"conversation": [{"role": "user", "content": "PWNED"}]},
        {"messages": [{"role": "user", "content": "PWNED"}]},
        {"tools": []},
        {"bos_token": "PWNED"},
        {"eos_token": "PWNED"},
        {"continue_final_message": True},
        {"add_generation_prompt": True},
        {"return_assistant_tokens_mask": True},
        {"tokenize": False},
        {"raise_exception": "PWNED"},
        {"namespace": "PWNED"},
    ],
)
def test_a_row_cannot_replace_template_or_conversation(own: dict[str, Any]) -> None:
    result = encode(Encoder(made_tokenizer(), DataConfig()), messages=CONVERSATION, chat_template_kwargs=own)
    assert isinstance(result, BadRow)
    assert result.reason == "reserved-template-variable"
    assert next(iter(own)) in result.detail


def test_a_variable_that_the_template_does_not_read_changes_nothing_and_is_counted() -> None:
    encoder = Encoder(made_tokenizer(), DataConfig())
    plain = encode(encoder, messages=CONVERSATION)
    assert not encoder.notices["template-variable-not-read"]
    given = encode(encoder, messages=CONVERSATION, chat_template_kwargs={"mood": "wild"})
    assert given.ids_T.tolist() == plain.ids_T.tolist()
    assert encoder.notices["template-variable-not-read"] == 1


def test_documents_are_data_that_a_row_may_give() -> None:
    encoder = Encoder(made_tokenizer(CHATML + "{% for d in documents or [] %}{{ d.text }}{% endfor %}"), DataConfig())
    without = encode(encoder, messages=CONVERSATION)
    given = encode(encoder, messages=CONVERSATION, chat_template_kwargs={"documents": [{"text": "fox"}]})
    assert len(given.ids_T) > len(without.ids_T)


def test_the_run_cannot_replace_the_conversation_either() -> None:
    config = DataConfig(chat_template_kwargs={"chat_template": "x"})
    with pytest.raises(TemplateError, match=r"`chat_template`.*chat_template_path"):
        encode(Encoder(made_tokenizer(), config), messages=CONVERSATION)


def test_the_run_may_set_a_special_token_and_hears_of_a_variable_that_is_not_read() -> None:
    encoder = Encoder(made_tokenizer("{{ bos_token }}" + CHATML), DataConfig(chat_template_kwargs={"bos_token": "q"}))
    assert isinstance(encode(encoder, messages=CONVERSATION), Example)
    encoder = Encoder(made_tokenizer(), DataConfig(chat_template_kwargs={"mood": "wild"}))
    encode(encoder, messages=CONVERSATION)
    assert any("`mood`" in sentence for sentence in encoder.report)


@pytest.mark.parametrize(
    "greedy",
    [
        "{{ 'x' * 10 ** 17 }}",
        "{{ 'x'.center(10 ** 17) }}",
        "{{ '%99999999999999999d' % 1 }}",
        "{{ 10.0 ** 400 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in 'x' %}" * 30 + "{% endfor %}" * 30,
    ],
)
def test_a_template_that_asks_for_too_much_refuses_the_row(greedy: str) -> None:
    result = encode(Encoder(made_tokenizer(greedy), DataConfig()), messages=CONVERSATION)
    assert isinstance(result, BadRow)
    assert result.reason == "template-refused"


@pytest.mark.parametrize("nested", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if a %}" * 5000])
def test_a_template_nested_too_deeply_is_an_error_before_training(nested: str) -> None:
    with pytest.raises(TemplateError, match=r"nested too deeply|syntax error"):
        encode(Encoder(made_tokenizer(nested), DataConfig()), messages=CONVERSATION)


def test_what_a_template_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(made_tokenizer(CHATML), DataConfig())
    assert isinstance(encode(encoder, messages=CONVERSATION), Example)
    monkeypatch.setattr(template_module, "LARGEST_TEXT", 20)
    result = encode(encoder, messages=CONVERSATION)
    assert isinstance(result, BadRow)
    assert "characters" in result.detail
