"""P4, of behavioural arms, and of numeric ones that no error of the baseline measures: no gate, but three seeds and the loss
on rows that were held out, with an interval."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dynotune.bench.parity.question import Answer, HeldOut
from dynotune.bench.parity.training import of_length, quiet, trained
from dynotune.bench.statistics import t_quantile
from dynotune.config.whole import WholeConfig
from dynotune.errors import DataError
from dynotune.plan.summary import ENDLESS
from dynotune.results.result import Check
from dynotune.train.start.material import Material

SEEDS = 3
STEPS = 100
"""Of the first arm, at most; the other one sees as many examples."""

SHARE = 0.1
"""Of the rows, held out where the configuration holds out none."""

ROWS = 512
"""Held-out rows that are evaluated, at most."""

AFTERWARDS: dict[str, Any] = {"eval_strategy": "steps", "eval_delay": ENDLESS}
"""Evaluations are asked for, without which no configuration may name held-out rows, and none is due while it trains: the one
that counts comes behind the last step."""


def why_nothing(*arms: WholeConfig) -> str:
    """Why no loss is measured unless it is asked for, as the end of a sentence; empty where the arms hold rows out."""
    if all(config.eval_dataset_name or config.test_split_size for config in arms):
        return ""
    return "no rows are held out (`test_split_size`, `eval_dataset_name`)"


def held_out(config: WholeConfig, asked: HeldOut, folder: Path, console: Console) -> Answer:
    """Train from `asked.seed`, then evaluate. Raises `DataError` where nothing can be held out."""
    split = None if config.eval_dataset_name or config.test_split_size else SHARE
    settings = quiet(
        config, folder / "run", seed=asked.seed, max_steps=1, test_split_size=split or config.test_split_size,
        eval_dataset_name=config.eval_dataset_name, **AFTERWARDS,
    )  # fmt: skip
    share, steps = asked.share, asked.steps

    def prepare(material: Material) -> tuple[Material, WholeConfig]:
        nonlocal share, steps
        epoch = material.plan.steps_per_epoch
        steps = min(steps, epoch) if steps else max(1, round(share * epoch))
        share = steps / epoch
        few = {name: replace(held, rows=held.rows[:ROWS]) for name, held in material.held_out.items()}
        if not few:
            raise DataError("No row is held out: give `eval_dataset_name`, or `test_split_size`.")
        return replace(of_length(material, steps), held_out=few), settings.replace(max_steps=steps)

    with trained(settings, console, prepare) as (run, _):
        assert run.evaluator is not None
        metrics = run.memory.evaluate(
            run, lambda evaluator, ladder: evaluator(run.trainee.model, run.autocast(), ladder)
        )
    losses = [value for name, value in metrics.items() if name.endswith("_loss")]
    return Answer({"held_out": math.fsum(losses) / len(losses), "steps": steps, "share": share, "seed": asked.seed})


def compared(first: Sequence[float], other: Sequence[float], kind: str) -> Check:
    """The mean gap of the held-out loss over seeds. It has no bound that it must keep: the bound is the half-width of its
    95 % interval, and nothing fails. kind: the word with which it is told."""
    gaps = [b - a for a, b in zip(first, other, strict=True)]
    mean = math.fsum(gaps) / len(gaps)
    spread = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1) / len(gaps))
    half = t_quantile(0.975, len(gaps) - 1) * spread
    a, b = (math.fsum(values) / len(values) for values in (first, other))
    detail = f"{kind}: {b:.4f} against {a:.4f}, {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}], {len(gaps)} seeds"
    return Check(gate="P4", quantity="held-out loss", observed=abs(mean), bound=half, ok=True, detail=detail)
