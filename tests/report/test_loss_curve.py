"""A loss curve shows what metrics.jsonl holds: every set, the right values at the right places, and what is missing."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.errors import DataError
from dynotune.report.curves import Curve, axes_for, read_curves
from dynotune.report.svg import svg_loss_curve
from dynotune.report.terminal import loss_curve
from dynotune.show.ticks import tick_label


def write(path: Path, rows: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def test_train_and_every_evaluation_set_are_read(tmp_path: Path) -> None:
    rows = [
        {"step": 10, "loss": 2.0, "learning_rate": 0.1},
        {"step": 20, "loss": 1.0},
        {"step": 20, "eval_loss": 1.5, "eval_gsm8k_loss": 1.75, "eval_runtime": 3.0},
    ]
    assert read_curves(write(tmp_path / "m.jsonl", rows)) == [
        Curve("train", [10, 20], [2.0, 1.0]),
        Curve("eval", [20], [1.5]),
        Curve("gsm8k", [20], [1.75]),
    ]


def test_a_step_logged_again_after_a_resume_counts_once_with_its_later_value(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 9.0}, {"step": 2, "loss": 2.0}]
    assert read_curves(write(tmp_path / "m.jsonl", rows)) == [Curve("train", [1, 2], [3.0, 2.0])]


def test_what_was_not_finite_is_counted_not_drawn(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": math.nan},
        {"step": 3, "loss": None},
        {"step": 4, "nonfinite": "loss inf", "examples": ["a:1"]},
        {"step": 5, "loss": 2.0},
    ]
    [curve] = read_curves(write(tmp_path / "m.jsonl", rows))
    assert curve == Curve("train", [1, 5], [3.0, 2.0], not_finite=3)
    assert "3 not finite" in loss_curve([curve]).plain
    assert "3 not finite" in svg_loss_curve([curve])


def test_a_torn_last_line_is_what_a_kill_leaves_and_a_torn_middle_line_is_an_error(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 3.0}]
    assert len(read_curves(write(tmp_path / "m.jsonl", rows, tail='{"step": 2, "lo'))) == 1
    with pytest.raises(DataError, match=r"m.jsonl:2: not JSON"):
        read_curves(write(tmp_path / "m.jsonl", rows, tail='{"step": 2, "lo\n{"step": 3, "loss": 1}\n'))


def test_no_loss_gives_a_sentence_and_no_picture(tmp_path: Path) -> None:
    assert read_curves(write(tmp_path / "m.jsonl", [])) == []
    assert loss_curve([]).plain == "no loss was logged"
    with pytest.raises(ValueError, match="no curve"):
        svg_loss_curve([])


finite = st.floats(-1e6, 1e6, allow_nan=False)
points = st.dictionaries(st.integers(0, 10**6), finite, min_size=1, max_size=30)


@given(points, points, st.integers(30, 200), st.integers(4, 40))
def test_every_curve_fits_its_frame(
    train: dict[int, float], held_out: dict[int, float], width: int, height: int
) -> None:
    curves = [
        Curve("train", sorted(train), [train[s] for s in sorted(train)]),
        Curve("eval", sorted(held_out), [held_out[s] for s in sorted(held_out)]),
    ]
    axes = axes_for(curves, 5, 5)
    for curve in curves:
        assert all(0 <= axes.x(step) <= 1 for step in curve.steps)
        assert all(-1e-9 <= axes.y(loss) <= 1 + 1e-9 for loss in curve.losses)
    lines = loss_curve(curves, width, height).plain.split("\n")
    assert len(lines) == height + 4  # plot, axis, its numbers, two lines of legend
    assert max(len(line) for line in lines[: height + 2]) <= width
    assert sum("●" in line for line in lines[:height]) >= 1
    ET.fromstring(svg_loss_curve(curves))


def test_the_terminal_curve_falls_where_the_loss_falls() -> None:
    lines = loss_curve([Curve("train", [0, 100], [4.0, 0.0])], width=60, height=10).plain.split("\n")[:10]
    plot = [line.split("┤")[-1].split("│")[-1] for line in lines]
    first = [next((i for i, c in enumerate(row) if c not in " ⠀"), None) for row in plot]
    assert None not in first
    assert first == sorted(first)  # further down is further right
    rising = loss_curve([Curve("train", [0, 100], [0.0, 4.0])], width=60, height=10).plain.split("\n")[:10]
    assert rising != lines  # a plot that ignored the losses would pass the above only by drawing a diagonal always


def test_the_svg_holds_the_points_at_their_places_and_loads_nothing() -> None:
    svg = svg_loss_curve([Curve("train", [0, 50, 100], [4.0, 2.0, 0.0]), Curve('a "<b>" set', [100], [1.0])], "run <1>")
    root = ET.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    [line] = [e for e in root.findall("s:polyline", space) if e.get("class") == "line s0"]
    points = [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    assert points[1] == ((points[0][0] + points[2][0]) / 2, (points[0][1] + points[2][1]) / 2)
    assert points[0][1] < points[2][1]  # SVG's y axis points down: a higher loss stands higher
    assert "prefers-color-scheme:dark" in svg
    assert "href" not in svg
    assert "url(" not in svg
    assert "<b>" not in svg


def test_rates_are_written_out() -> None:
    assert [tick_label(value) for value in (11846.2, 1500.0, 3741.4, 0.25, 1e-05, 4.348)] == [
        "11,846", "1,500", "3,741", "0.25", "1e-05", "4.348",
    ]  # fmt: skip
