"""A run that stands: how its steps are executed is decided, what they need is computed, and the loop can take them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from dynotune.config.whole import WholeConfig
from dynotune.speedups.table import planned_rows, show
from dynotune.train.faults.before import out_of_memory_explained
from dynotune.train.outside.asked import Asked, limit_of
from dynotune.train.run import Run
from dynotune.train.start.assemble import assemble
from dynotune.train.start.device import draw_apart
from dynotune.train.start.execution import Execution, choose_execution
from dynotune.train.start.given import Given, came_with_adapter
from dynotune.train.start.opened import Opened
from dynotune.train.start.recipe import Measured, Recipe, Start
from dynotune.train.telling.journal import Row


@dataclass(frozen=True, slots=True)
class Standing:
    """A run ready for the loop."""

    run: Run
    execution: Execution
    before: list[str]
    """What was said of what every step needs, such as a reference."""


def stand(
    it: Opened,
    config: WholeConfig,
    recipe: Recipe,
    given: Given,
    *,
    undo: ExitStack,
    listeners: Sequence[Callable[[Row], None]] = (),
    rehearsal: bool = False,
    measured: Measured | None = None,
) -> Standing:
    """Put the speed-ups of `config` into the model, and the parts of the run together. `undo` takes the speed-ups out.

    config: that of `it`, or one that has the same data, steps and model and executes them otherwise.
    """
    prepared, material, device, ranks, say = it.prepared, it.material, it.device, it.ranks, it.say
    with out_of_memory_explained("probing", config, device):
        execution = choose_execution(
            config,
            material.plan,
            prepared.model,
            recipe.paths,
            held_out=material.held_out,
            precision=it.precision,
            undo=undo,
            ranks=ranks,
            say=say,
            examined=it.examined,
            parts=it.set_up,
        )
    for line in (*execution.says, *([execution.plan.ranks_summary()] if ranks.world > 1 else [])):
        say(line)
    if ranks.is_first:
        show(planned_rows(execution.installed.decisions, execution.effect), it.console)
    with out_of_memory_explained("the reference", config, device, execution.plan), it.set_up.of("the reference"):
        before = recipe.before_first_step(
            Start(
                execution=execution,
                material=material,
                model=prepared.model,
                device=device,
                ranks=ranks,
                resumed=it.resume_from is not None,
                as_in_files=prepared.as_in_files,
                trained=it.trained,
                continued_adapter=came_with_adapter(given, config.use_peft),
                rehearsal=rehearsal,
                say=say,
                console=it.console,
                measured=measured,
            )
        )
    draw_apart(config.seed, ranks)
    with it.set_up.of("optimizer and checkpoint"):
        it.run = run = assemble(
            config,
            folder=it.folder,
            items=material.items,
            places=material.places,
            held_out=material.held_out,
            model=prepared.model,
            tokenizer=it.tokenizer,
            objective=recipe.objective,
            execution=execution,
            device=device,
            callbacks=given.callbacks,
            checkpoints=it.checkpoints,
            resume_from=it.resume_from,
            console=it.console,
            listeners=listeners,
            on_save=it.hub.push_checkpoint if it.hub else lambda checkpoint: None,
            ranks=ranks,
            outside=Asked(it.signals, limit_of(config, it.signals, prepared.model), say),
        )
    if run.update.waits_for_device:
        say(f"note: `optim: {config.optim}` has no fused kernel here, so the host waits for the device once a step")
    return Standing(run, execution, before)
