"""Promise: by itself a run compiles only where measured figures say that its steps win the time back."""

from dataclasses import replace

from dynotune.model.compiled.expected_gain import Figure, Work, why_not_worth

FIGURE = Figure(saved=1e-10, graph_seconds=6.0, source="results/x.json")
WORK = Work(steps=1000, tokens_a_step=16_384, graphs=4, layers=28, hidden=3584)
"""Saves 0.164 s a step and costs 24 s: 146 steps."""


def test_enough_steps() -> None:
    assert why_not_worth(FIGURE, WORK) is None
    assert why_not_worth(FIGURE, replace(WORK, steps=147)) is None


def test_too_few_steps_are_said_with_the_figures() -> None:
    why = why_not_worth(FIGURE, replace(WORK, steps=145))
    assert why is not None
    assert "about 24 s" in why
    assert "145 steps" in why
    assert "about 146" in why
    assert "results/x.json" in why


def test_without_figures_or_gain_it_is_not_taken() -> None:
    assert "nobody has measured" in (why_not_worth(None, WORK) or "")
    assert "not faster" in (why_not_worth(replace(FIGURE, saved=0.0), WORK) or "")
