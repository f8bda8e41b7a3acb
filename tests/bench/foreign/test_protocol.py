"""Promise: what a command reports is taken where it can be, and refused where it cannot, with what to print instead."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.bench.foreign.protocol import KEYS, report_of, told
from dynotune.errors import DataError

GOOD = {"tokens": 1000, "seconds": 2.5}


def written(tmp_path: Path, output: str, file: str | None = None) -> tuple[Path, Path]:
    (tmp_path / "out").write_text(output)
    if file is not None:
        (tmp_path / "report").write_text(file)
    return tmp_path / "report", tmp_path / "out"


def test_the_last_report_on_stdout_counts(tmp_path: Path) -> None:
    first, last = json.dumps({"tokens": 1, "seconds": 1}), json.dumps(GOOD)
    behind = '{\'loss\': 1.2}\n{"event": "saved"}\n{not json\nbye'
    found = report_of(*written(tmp_path, f"{first}\n 50%|###   |\r{last}\n{behind}\n"), 3.0)
    assert (found.tokens, found.seconds, found.loss) == (1000, 2.5, None)


def test_the_file_wins_over_stdout(tmp_path: Path) -> None:
    found = report_of(*written(tmp_path, json.dumps(GOOD), json.dumps({"tokens": 7, "seconds": 1, "loss": 0.5})), 3.0)
    assert (found.tokens, found.loss) == (7, 0.5)


@pytest.mark.parametrize("file", ["", "[1]", "{", "[" * 100_000])
def test_a_file_that_is_no_report_is_not_passed_over(tmp_path: Path, file: str) -> None:
    with pytest.raises(DataError, match="no JSON object"):
        report_of(*written(tmp_path, json.dumps(GOOD), file), 3.0)


@pytest.mark.parametrize("output", ["", "done in 3 s", "{'tokens': 3, 'seconds': 1}", '{"loss": 1.0}'])
def test_without_a_report_it_says_what_to_print(tmp_path: Path, output: str) -> None:
    with pytest.raises(DataError, match=r'print \{"tokens": 123456, "seconds": 78.9\}.*DYNOTUNE_BENCH_REPORT'):
        report_of(*written(tmp_path, output), 3.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seconds": 3.1}, "whole process took 3.000 s"),
        ({"seconds": 0}, "above 0"),
        ({"seconds": -1.0}, "above 0"),
        ({"seconds": math.nan}, "finite"),
        ({"seconds": math.inf}, "no number"),
        ({"seconds": True}, "no number"),
        ({"seconds": "2"}, "no number"),
        ({"seconds": None}, "no `seconds`"),
        ({"tokens": None}, "no `tokens`"),
        ({"tokens": True}, "no count"),
        ({"tokens": 0}, "nothing was trained"),
        ({"tokens": -5}, "no count"),
        ({"tokens": 1.5}, "no count"),
        ({"tokens": math.nan}, "no count"),
        ({"tokens": 10**40}, "no count"),
        ({"loss": math.nan}, "finite"),
        ({"devices": 0}, "nothing was trained"),
        ({"label_tokens": 1001}, "more `label_tokens`"),
        ({"processed_tokens": 999}, "fewer `processed_tokens`"),
        ({"label_token": 5}, "label_tokens"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        told({**GOOD, **change}, 3.0)


def test_keys_of_others_are_left_alone() -> None:
    assert told({**GOOD, "train_runtime": 3, "epoch": 1.0, "steps": 4.0}, 3.0).steps == 4


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING), st.floats(0.001, 1e6))
def test_every_report_is_possible_or_refused(report: dict[str, Any], wall: float) -> None:
    try:
        found = told(report, wall)
    except DataError:
        return
    assert 0 < found.seconds <= wall
    assert found.tokens > 0
    assert all(math.isfinite(value) for key in KEYS if (value := getattr(found, key)) is not None)
