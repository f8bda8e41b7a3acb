"""Promise: by itself a run compiles only where measured figures say that its steps win the time back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dynotune.model.compiled.expected_gain import FIGURES, Figure, Work, why_not_worth

FIGURE = Figure(saved=1e-10, graph_seconds=6.0, source="results/x.json")
WORK = Work(steps=1000, tokens_a_step=16_384, graphs=4, layers=28, hidden=3584)
"""Saves 0.164 s a step and costs 24 s: 146 steps."""

RESULTS = Path(__file__).parents[3]


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


@pytest.mark.parametrize("of", FIGURES, ids=str)
def test_shipped_figures_are_those_of_the_result_that_they_name(of: tuple[str, str]) -> None:
    figure = FIGURES[of]  # type: ignore[index]
    result = json.loads((RESULTS / figure.source).read_text())
    rows, shape = result[of[1]], result["shape"]
    tokens = max(row["tokens"] for row in rows)
    ms = {row["way"]: row["ms"] for row in rows if row["tokens"] == tokens}
    kernels = (ms["kernels"] + ms.get("kernels again", ms["kernels"])) / 2
    elements = tokens * shape["num_hidden_layers"] * shape["hidden_size"]
    assert result["hardware"] == of[0]
    assert figure.saved == pytest.approx((kernels - ms["compiled"]) / 1e3 / elements, rel=0.01)
    report = next(row["report"] for row in rows if row["way"] == "compiled" and "report" in row)
    assert figure.graph_seconds == pytest.approx(report["seconds"] / report["graphs"], rel=0.02)
