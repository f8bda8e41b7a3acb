"""Promise: the closing sentence of a bench counts what was held: seconds of a GPU, or of a machine that has none."""

import pytest

from dynotune.bench.judging.sentence import closing, name
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


def test_of_many_settings_an_arms_name_shows_the_first_and_their_number() -> None:
    """Eleven of them filled each line of a report. The name itself is whole: by that results are held together."""
    some = [f"speedups.{one}: auto" for one in ("packed_execution", "attention_fa3", "fused_lora", "prefetch")]
    assert name(", ".join(some)) == "speedups.packed_execution: auto and 3 more"
    assert name("beta: 0.2, loss_type: ipo, seed: 3") == "beta: 0.2, loss_type: ipo, seed: 3"
    assert name("seed: 3, betas: 0.9, 0.95") == "seed: 3, betas: 0.9, 0.95"
