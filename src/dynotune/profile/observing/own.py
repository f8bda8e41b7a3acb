"""A run of Dynotune's own, observed: opened and stood as any run, and left after the steps that were asked for."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from dynotune.config.variables import export_env
from dynotune.config.whole import WholeConfig
from dynotune.data.store.location import cache_folder
from dynotune.measure.calibration import ceilings_of
from dynotune.measure.counters import count_kernels
from dynotune.parallel.join import joined, place
from dynotune.profile.analysis.ranks import own_seconds
from dynotune.profile.observing.observer import Observer
from dynotune.profile.records.facts import environment_of, inner_model, model_facts, optimizer_name, places_of
from dynotune.profile.records.precision import SIXTEEN_BITS
from dynotune.profile.records.record import Environment, ModelFacts, Record, SpeedupState, of_plain
from dynotune.say import sayer
from dynotune.speedups.contract import Context, No, Speedup
from dynotune.speedups.installed import Installed
from dynotune.speedups.machine import machine_of
from dynotune.speedups.registry import speedups
from dynotune.train.loop import train
from dynotune.train.quiet import quiet
from dynotune.train.start.device import set_up_process
from dynotune.train.start.given import Given
from dynotune.train.start.opened import opened
from dynotune.train.start.recipe import Measured
from dynotune.train.start.recipes import recipe_of
from dynotune.train.start.stand import stand

NOT_RUN = "evaluation, checkpoints, trackers and the hub were off while steps were timed: what they take is not in it"


@dataclass(frozen=True, slots=True)
class Asked:
    """How to observe."""

    steps: int = 20
    measuring: str = ""
    """`Record.measuring`."""

    snapshot: Path | None = None
    """File for PyTorch's memory viewer."""

    calibrate_anew: bool = False
    warm_up: int | None = None
    """Steps before, in the place of the rule."""


def observe(config: WholeConfig, asked: Asked, console: Console) -> Record:
    """Train a few steps in a folder that is thrown away. On one of several processes: what the first one saw.

    Raises what a run raises before and in its first steps.
    """
    export_env(config.env)
    here = place(config)
    device = set_up_process(config, here.local_rank)
    count_kernels()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="dynotune-profile-")))
        paths = _paths(config)
        config = quiet(config, folder / "run")
        ranks = stack.enter_context(joined(here, device, config.ddp_timeout))
        ceilings = ceilings_of(device, machine_of(device).key, anew=asked.calibrate_anew)
        say = sayer(console) if ranks.is_first else _nothing
        observer = Observer(asked.steps, device, say, asked.snapshot if ranks.is_first else None, asked.warm_up)
        recipe, given = recipe_of(config), Given(callbacks=[observer])
        it = stack.enter_context(opened(config, recipe, given, ranks, device, console))
        undo = stack.enter_context(ExitStack())
        standing = stand(it, config, recipe, given, undo=undo, measured=Measured(observer.most_steps))
        run, execution = standing.run, standing.execution
        model = it.prepared.model
        compute = str(execution.site.context.compute).removeprefix("torch.")
        packed = execution.site.attention if execution.site.packed else ""
        asked_for = compute if compute in SIXTEEN_BITS else ""
        facts = of_plain(ModelFacts, model_facts(model, inner_model([model]) or model, model, asked_for, packed))
        observer.run, observer.places = run, places_of(model, facts.head_places)
        run.events.callbacks.sort(key=lambda one: one is observer)  # a step ends behind what other callbacks do in it
        run.display.ends_at(observer.most_steps)
        try:
            train(run)
        finally:
            run.display.stop()
        record = Record(
            trainer="dynotune",
            timed=tuple(observer.timed),
            traced=tuple(observer.traced),
            environment=of_plain(
                Environment,
                environment_of(
                    device,
                    world=ranks.world,
                    loader_workers=1 if run.feed.ahead else 0,
                    pinned=device.type == "cuda",
                    paths=paths,
                ),
            ),
            model=facts,
            memory=observer.memory,
            ceilings=ceilings,
            warm_up=observer.warm_up,
            method=config.method.command,
            optimizer=optimizer_name(run.trainee.optimizer),
            speedups=tuple(_states(execution.installed)),
            measuring=asked.measuring,
            notes=(
                NOT_RUN,
                *(() if observer.traced else ("another profiler ran in this process: nothing was traced",)),
            ),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        each = ranks.gather(own_seconds(record)) if ranks.world > 1 else []
        return replace(record, own_seconds={rank: took for rank, took in enumerate(each) if took is not None})


def _paths(config: WholeConfig) -> dict[str, Path]:
    """What a run of this configuration reads and writes, as far as it lies in files."""
    there = {"data": config.dataset_name, "model": config.model_name_or_path}
    found = {what: Path(name) for what, name in there.items() if name and Path(name).exists()}
    output = {"output": Path(config.output_dir)} if config.output_dir else {}
    return {**found, "token store": cache_folder(config.token_cache_dir), **output}


def _states(installed: Installed) -> list[SpeedupState]:
    found = []
    for one in installed.decisions:
        no, state = one.no, "installed" if one.no is None else "left out"
        if one.setting == "off":  # of what is off nobody has asked yet whether it could run here
            why_not = _why_not(one.speedup, installed.site.context)
            no, state = (why_not, "left out") if why_not else (no, "off")
        reason = no.reason if no else ""
        # What surprises nobody (no GPU, another of its slot runs) needs no remedy.
        remedy = no.remedy if no and not no.expected and one.behind is None else ""
        found.append(SpeedupState(one.name, str(one.speedup.kind), state, reason, remedy))
    return found


def _why_not(speedup: Speedup, context: Context) -> No | None:
    """Why it cannot run here whatever is asked for, or what it needs cannot."""
    known = speedups()
    needed = (known[name] for name in speedup.requires if name in known)
    every = (one.applicable(context) for one in (speedup, *needed))
    return next((no for no in every if no is not None and not no.remedy), None)


def _nothing(text: str) -> None:
    pass
