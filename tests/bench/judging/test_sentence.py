"""Promise: the closing sentence of a bench counts what was held: seconds of a GPU, or of a machine that has none."""

import pytest

from dynotune.bench.judging.sentence import closing
from dynotune.results.result import Interval, Verdict
from tests.bench import made


@pytest.mark.parametrize(("device", "unit"), [("CPU", "31 seconds"), ("NVIDIA H200", "31 GPU seconds")])
def test_what_more_pairs_take_is_in_seconds_of_what_ran(device: str, unit: str) -> None:
    result = made.ab()
    open_one = result.comparisons[0].model_copy(
        update={
            "verdict": Verdict.UNRESOLVED,
            "ratio": Interval(low=0.9, estimate=1.0, high=1.1),
            "needs_more_pairs": 20,
            "needs_more_seconds": 31.0,
        }
    )
    one = result.model_copy(update={"comparisons": (open_one,), "model": {**result.model, "device": device}})
    assert closing(one).endswith(f"needs about 20 more pairs ({unit}).")
