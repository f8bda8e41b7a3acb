"""A run that is trained for a while without a trace in any folder, tracker or hub."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dynotune.bench.parity.settings import changes_something
from dynotune.config.whole import WholeConfig
from dynotune.model.dropout import without_dropout
from dynotune.parallel.ranks import Ranks
from dynotune.plan.plan import Plan
from dynotune.train.loop import train
from dynotune.train.quiet import QUIET, without_evaluations
from dynotune.train.run import Run
from dynotune.train.start.device import set_up_process
from dynotune.train.start.given import Given
from dynotune.train.start.material import Material
from dynotune.train.start.opened import opened
from dynotune.train.start.recipes import recipe_of
from dynotune.train.start.stand import stand
from dynotune.train.telling.journal import Row

GO_ON: dict[str, Any] = {
    "on_nonfinite_step": "skip",
    "max_nonfinite_steps": 1_000_000,
    "max_consecutive_nonfinite_steps": 1_000_000,
}
"""A step that is not finite is counted, and ends nothing."""


def quiet(config: WholeConfig, folder: Path, **changes: Any) -> WholeConfig:
    """`config` for a short training that is looked at step by step."""
    wanted = {
        **QUIET, **without_evaluations(config), **GO_ON, "output_dir": str(folder), "overwrite_output_dir": True,
        "gpus": None, "logging_steps": 1, "logging_strategy": "steps", **changes,
    }  # fmt: skip
    return config.replace(**{key: value for key, value in wanted.items() if changes_something(config, key, value)})


@contextmanager
def trained(
    settings: WholeConfig,
    console: Console,
    prepare: Callable[[Material], tuple[Material, WholeConfig]],
    plan: Callable[[Plan], Plan] = lambda plan: plan,
    *,
    dropout: bool = True,
) -> Iterator[tuple[Run, list[Row]]]:
    """The run behind its last step, with the rows of its steps.

    prepare: gives the data to take, and the settings for them. plan: gives the steps to take, of those laid out.
    """
    rows: list[Row] = []
    recipe, given, ranks = recipe_of(settings), Given(), Ranks()
    device = set_up_process(settings)
    with ExitStack() as stack:
        it = stack.enter_context(opened(settings, recipe, given, ranks, device, console))
        undo = stack.enter_context(ExitStack())
        if not dropout:
            without_dropout(it.prepared.model, undo)
        it.material, settings = prepare(it.material)
        run = stand(it, settings, recipe, given, undo=undo, listeners=[rows.append]).run
        run.plan = plan(run.plan)
        try:
            train(run)
        finally:
            run.display.stop()
        yield run, rows


def of_length(material: Material, steps: int) -> Material:
    """The same data in a plan of so many steps."""
    plan = material.plan.executed(None)
    plan.total_steps = steps
    return replace(material, plan=plan)
