"""The end of a run: the best model where one was asked for, the final model or adapter, its card, the curve, the hub."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynotune.config.whole import WholeConfig
from dynotune.measure.wall import TRAINING, Kind, add, goodput, times, wall
from dynotune.measure.words import BEST_POSSIBLE, DEFINITIONS
from dynotune.printable import printable
from dynotune.report.curves import read_curves
from dynotune.report.model_card import write_model_card
from dynotune.report.run_page import NAME as REPORT
from dynotune.report.run_page import write_run_report
from dynotune.report.speed import speed_sentence
from dynotune.report.svg import write_svg_loss_curve
from dynotune.report.terminal import loss_curve
from dynotune.say import amount
from dynotune.train.checkpoints.unwritten import PATIENCE, patiently
from dynotune.train.checkpoints.weights import model_folder, save_model
from dynotune.train.folder.bench_report import tell_bench
from dynotune.train.folder.hub import HubPusher
from dynotune.train.folder.run_folder import RunFolder
from dynotune.train.outside.kept import the_same_command
from dynotune.train.run import Run


def finish(run: Run, config: WholeConfig, folder: RunFolder, hub: HubPusher | None, began: float) -> dict[str, Any]:
    """Write what the run leaves behind, show the curve, and return the figures of the whole run; on every rank, of which
    the first one writes."""
    of_ranks = run.ranks.gather(_of_this_rank(run))
    run.hear(run.notices.rest())
    take_best(run, config)  # behind that meeting: the first rank has written every checkpoint by then
    with run.ranks.first_alone("writing the model") as mine:
        if mine:
            return _write(run, config, folder, hub, began, of_ranks)
    return summary(run, time.perf_counter() - began, of_ranks)


def _write(
    run: Run,
    config: WholeConfig,
    folder: RunFolder,
    hub: HubPusher | None,
    began: float,
    of_ranks: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    target = folder.path / model_folder(run.trainee.is_adapter)
    with run.outside.writing():
        patiently(
            lambda: save_model(run.trainee.model, run.trainee.tokenizer, target),
            PATIENCE,
            run.display.say,
            stop=run.outside.cannot_wait,
        )
        folder.finished = target
    folder.require_lines()
    curves = read_curves(folder.metrics) if folder.metrics.is_file() else []
    if curves:
        write_svg_loss_curve(curves, folder.path / "loss.svg", title="loss")
        if any(len(curve.steps) > 1 for curve in curves):  # one point is no curve
            run.display.console.print(loss_curve(curves))
    figures = summary(run, time.perf_counter() - began, of_ranks)
    folder.write_json("summary.json", figures)
    write_model_card(folder.path, figures)
    _write_report(run, folder)
    run.display.say(
        f"{amount(figures['steps'], 'step')}, {figures['num_tokens']:,} tokens in {figures['train_seconds']:.1f} s"
    )
    run.display.say(speed_sentence(figures))
    if figures["train_loss"] is not None:
        run.display.say(f"mean training loss {figures['train_loss']:.4f}")
    if run.best and run.best.out_of_patience:
        run.display.say(
            f"stopped early: {run.trainee.progress.evaluations_without_gain} evaluations without a gain in {run.best.metric}"
        )
    run.display.say(f"saved {target}")
    folder.seal(run.trainee.progress.step, done=True)
    tell_bench(run)
    if hub:
        address = hub.finish(target)
        if address:
            run.display.say(f"pushed to {address}")
    return figures


def _write_report(run: Run, folder: RunFolder) -> None:
    """The page repeats what the other files hold, so a run whose page fails is whole: that is said."""
    try:
        folder.write_text(REPORT, write_run_report(folder.path))
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:  # whatever a strange file can raise
        run.display.say(f"warning: {folder.path / REPORT} was not written ({printable(str(error), 200)})")


@dataclass(frozen=True, slots=True)
class Left:
    """How a run ended before its last step."""

    why: str
    checkpoint: Path
    text: str
    """All of it, and how to go on."""


def leave(run: Run, folder: RunFolder, began: float) -> tuple[Left, dict[str, Any]]:
    """What a run leaves that ends before its last step: figures, and no final model."""
    of_ranks = run.ranks.gather(_of_this_rank(run))
    run.hear(run.notices.rest())
    step, of = run.trainee.progress.step, run.plan.total_steps
    checkpoint = run.checkpoints.path(step)
    why = next((said for said in run.ranks.gather(run.outside.why()) if said), "another process")
    text = f"{why}: left after step {step} of {of}, saved as {checkpoint}; no final model was written. "
    if run.checkpoints.only_model:
        text += "`save_only_model` keeps no optimizer state, so the run cannot be gone on with"
    else:
        text += f"Go on {the_same_command(folder.path, run.events.config.overwrite_output_dir)}"
    figures = summary(run, time.perf_counter() - began, of_ranks)
    figures["interrupted"] = {"why": why, "step": step, "of": of, "checkpoint": str(checkpoint)}
    folder.write_json("summary.json", figures)
    run.display.say(text)
    return Left(why, checkpoint, text), figures


LEAST_TOLD = 0.01
"""Seconds of a part of setting up from which on it has a figure."""


def take_best(run: Run, config: WholeConfig) -> None:
    """With `load_best_model_at_end` the model becomes the best one that was saved."""
    trainee, progress = run.trainee, run.trainee.progress
    if config.load_best_model_at_end and progress.best_step not in (None, progress.step):
        assert progress.best_step is not None
        assert run.best is not None
        best = run.checkpoints.path(progress.best_step)
        if run.ranks.from_first(best.is_dir()):
            run.checkpoints.load_best(progress.best_step, trainee)
            run.display.say(
                f"took the best checkpoint: step {progress.best_step} ({run.best.metric} {progress.best_metric:.4f})"
            )
        else:
            run.display.say(
                f"warning: the best checkpoint, {best}, is not there (a save that failed?): the model of the last step is"
                " kept instead"
            )
    if config.load_best_model_at_end and progress.best_step is None:
        run.display.say("note: no evaluation was finite, so the model of the last step is kept")


def _of_this_rank(run: Run) -> dict[str, float]:
    """What each process has of its own."""
    own = {"data_wait_seconds": run.feed.wait_seconds}
    if run.ranks.world > 1:
        account = run.trainee.progress.account
        own |= {f"slowest/{kind}": account.get(kind, 0.0) for kind in sorted(TRAINING)}
    if run.surroundings.peaks is not None:
        known = run.surroundings.peaks.figures(run.surroundings.seen.memory_used)
        own |= {name: value for name, value in known.items() if "peak" in name}
    return own


def summary(run: Run, seconds: float, of_ranks: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Figures of the whole run, each defined once: docs, "Metrics". Of ranks the largest counts."""
    p = run.trainee.progress
    account = dict(p.account)
    add(account, {Kind.SET_UP: max(0.0, seconds - (wall(account) - run.wall_before))})
    out: dict[str, Any] = {
        "method": run.events.config.method.command,
        "definitions": DEFINITIONS,
        "steps": p.step,
        "epochs": run.plan.epochs_at(p.step),
        "train_loss": p.loss_sum / p.finite_steps if p.finite_steps else None,
        "num_tokens": p.tokens,
        "real_tokens": p.totals.real_tokens,
        "label_tokens": p.label_tokens,
        "train_seconds": p.train_seconds,
        **speed(run),
        "examples": p.examples,
        "process_seconds": seconds,
        "wall_seconds": wall(account),
        "goodput": goodput(account),
        **times(account),
        **{f"set_up/{name.replace(' ', '_')}": took for name, took in run.set_up.items() if took >= LEAST_TOLD},
        "skipped_steps": p.skipped_steps,
        "failed_saves": run.unwritten.in_all,
        "out_of_memory": p.out_of_memory,
        "meter_microseconds_per_step": run.journal.own.a_step,
        "meter_steps": run.journal.own.steps,
    }
    # What lies behind the tenth step and is none has steady seconds, and no steady step.
    if (proof := account.get(Kind.PROOF)) and p.steady.steps and p.steady.seconds > 0:
        out["proof_steps"] = proof * p.steady.steps / p.steady.seconds
    # A rank may have had no document in the steps that were looked at.
    out |= {name: max(own.get(name, 0.0) for own in of_ranks) for name in of_ranks[0]}
    if run.ranks.world > 1:
        out["ranks"] = run.ranks.world
    if p.best_step is not None:
        out |= {"best_step": p.best_step, "best_metric": p.best_metric}
    return out


def speed(run: Run) -> dict[str, Any]:
    """Rates, fill and MFU of all steps, and the same without each process's first ones."""
    progress, known = run.trainee.progress, run.journal.utilisation
    out = progress.totals.figures() | {"measured_steps": progress.totals.steps}
    if known.peak is not None:
        out |= {"peak_tflops": known.peak.tflops, "peak_source": known.peak.source}
    else:
        out["no_mfu"] = known.why_not
    if out.get("mfu", 0.0) > BEST_POSSIBLE:
        out["impossible"] = "More than the peak is impossible: the peak, the clock or the count is wrong"
    if progress.steady.steps:
        out |= {f"steady_{name}": value for name, value in progress.steady.figures().items()}
        out["steady_steps"] = progress.steady.steps
    return out
