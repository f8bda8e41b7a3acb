"""Promise: no chat template can make a run wait, or take the machine's memory; it is refused."""

import time
from typing import Any

import pytest

from dynotune.data.templates import bounds
from dynotune.data.templates.bounds import TooCostlyError
from dynotune.data.templates.template import ChatTemplate
from tests.tiny import tiny_tokenizer


def render(template: str) -> str:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return ChatTemplate(tokenizer).render([{"role": "user", "content": "words"}]).text


COSTLY = [
    "{{ 7 ** 99999999 }}",
    "{% set n = namespace(x=99) %}{% for i in range(40) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ ([0] * 10**9) | length }}",
    "{{ '%099999999999d' % 3 }}",
    "{{ '%*d' % (999999999, 3) }}",
    "{{ '%099999999999d' | format(3) }}",
    "{{ '{:99999999999}'.format(3) }}",
    "{{ '{:{}}'.format(3, 999999999) }}",
    "{{ 'a'.center(9999999999) }}",
    "{{ messages[0].content.zfill(9999999999) }}",
    "{{ 'a' | center(9999999999) }}",
    "{{ 'a\nb' | indent(9999999999) }}",
    "{{ messages | tojson(indent=999999999) }}",
    "{% set n = namespace(s='aaaa') %}{% for i in range(60) %}{% set n.s = n.s.replace('a', n.s) %}{% endfor %}",
    "{% set n = namespace(s='aaaa') %}{% for i in range(60) %}{% set n.s = n.s | replace('a', n.s) %}{% endfor %}",
    "{{ ('a' * 99999).join(['b'] * 99999) }}",
    "{{ (['b'] * 99999) | join('a' * 99999) }}",
    *(
        "{% set n = namespace(s='a' * 9999999) %}{% for i in range(60) %}" + more + "{% endfor %}"
        for more in (
            "{% set n.s = n.s ~ n.s %}",
            "{% set n.s = n.s + n.s %}",
            "{% set n.s = n.s + 'and' + n.s %}",
            "{% set n.s = 'and' + n.s + n.s %}",
            "{% set n.s = n.s + ('and' + n.s) %}",
            "{% set s %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = s %}",
            "{% macro m() %}{{ n.s }}{{ n.s }}{% endmacro %}{% set n.s = m() %}",
        )
    ),
    "{{ ('\t' * 99999).expandtabs(99999) }}",
]


@pytest.mark.parametrize("template", COSTLY)
def test_an_operation_that_asks_for_too_much_is_refused_before_it_is_done(template: str) -> None:
    began = time.process_time()
    with pytest.raises(TooCostlyError, match="the chat template is broken"):
        render(template)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("template", COSTLY)
def test_looking_for_names_computes_nothing(template: str) -> None:
    """Found by the fuzz: Jinja folds constants there, too."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    began = time.process_time()
    assert ChatTemplate(tokenizer).variables <= {"messages"}
    assert time.process_time() - began < 2


def test_ordinary_operations_give_what_they_gave() -> None:
    """Negative control: the bounds refuse nothing that templates do."""
    template = (
        "{{ 'ab' * 3 }}|{{ 3 * 2 }}|{{ 2 ** 10 }}|{{ 7 % 4 }}|{{ '%05.1f' % 2 }}|{{ '%s-%s' | format(1, 'b') }}"
        "|{{ 'a'.center(5) }}|{{ 'a' | center(3) }}|{{ ['a', 'b'] | join('-') }}|{{ '-'.join(['a', 'b']) }}"
        "|{{ 'aXb' | replace('X', 'yy') }}|{{ 'aXb'.replace('X', 'yy') }}|{{ 'a\nb' | indent(2) }}"
        "|{{ 1 ~ 'b' ~ none }}|{{ 1 + 2 }}|{{ 'a' + 'b' }}|{% set b %}x{{ 1 }}{% endset %}{{ b }}"
        "|{{ {'a': [1]} | tojson(indent=1) }}|{{ '{:>4}{x}'.format(3, x='!') }}|{{ 2.5 * 2 }}|{{ 2 ** -1 }}|{{ [0] * 2 }}"
    )
    assert render(template) == (
        "ababab|6|1024|3|002.0|1-b|  a  | a |a-b|a-b|ayyb|ayyb|a\n  b|1bNone|3|ab|x1|"
        '{\n "a": [\n  1\n ]\n}|   3!|5.0|0.5|[0, 0]'
    )


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def test_a_rendering_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST", 0.3)
    began = time.process_time()
    with pytest.raises(TooCostlyError, match="takes too much time or memory"):
        render(ENDLESS)
    assert time.process_time() - began < 10
    assert render("{{ messages[0].content }}") == "words"  # the next one is not stopped for it


def test_a_template_that_was_stopped_again_and_again_is_not_tried_for_every_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "LONGEST", 0.0)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = ENDLESS
    template = ChatTemplate(tokenizer)
    began = time.process_time()
    for row in range(200):
        with pytest.raises(TooCostlyError, match="for 3 conversations" if row >= 3 else "takes too much time"):
            template.render([{"role": "user", "content": "words"}])
    assert time.process_time() - began < 10


def test_a_rendering_that_fills_the_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_MEMORY", 64 << 20)
    slowly = (
        "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = n.l + ['x' * 99999 ~ i] %}{% endfor %}"
    )
    with pytest.raises(TooCostlyError, match="takes too much time or memory"):
        render(slowly)


def test_the_bounds_are_what_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the watch, a long rendering goes on to its end."""
    long = "{% for i in range(49999) %}{% for j in range(199) %}{% endfor %}{% endfor %}done"
    monkeypatch.setattr(bounds, "LONGEST", 0.0)
    monkeypatch.setattr(bounds, "_LOOKS", 0.01)
    watch: Any = bounds._Watch()
    monkeypatch.setattr(bounds, "_watch", watch)
    with pytest.raises(TooCostlyError):
        render(long)
    monkeypatch.setattr(bounds, "LONGEST", 60.0)
    assert render(long) == "done"
