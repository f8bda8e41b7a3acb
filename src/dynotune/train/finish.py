"""The end of a run: the best model where one was asked for, the final model or adapter, its card, the curve, the hub."""

from pathlib import Path
from typing import Any

from dynotune.config.sft import SFTConfig
from dynotune.train.checkpoint import load_weights, model_folder, save_model
from dynotune.train.loop import Run
from dynotune.train.run_folder import RunFolder


def keep_model(run: Run, config: SFTConfig, folder: RunFolder) -> Path:
    """Write the final model or adapter into the run folder; with `load_best_model_at_end`, the best one."""
    trainee, progress = run.trainee, run.trainee.progress
    if config.load_best_model_at_end and progress.best_step not in (None, progress.step):
        assert progress.best_step is not None
        assert run.best is not None
        best = run.checkpoints.path(progress.best_step)
        load_weights(trainee.model, best / model_folder(trainee.is_adapter))
        run.display.say(f"took the best checkpoint: step {progress.best_step} ({run.best.metric} {progress.best_metric:.4f})")
    target = folder.path / model_folder(trainee.is_adapter)
    save_model(trainee.model, trainee.tokenizer, target)
    return target


def summary(run: Run, seconds: float, peak_gib: float | None) -> dict[str, Any]:
    """Figures of the whole run, each defined once: docs, "Metrics"."""
    p = run.trainee.progress
    out: dict[str, Any] = {
        "steps": p.step,
        "real_tokens": p.tokens,
        "label_tokens": p.label_tokens,
        "train_seconds": p.train_seconds,
        "tokens_per_second": p.tokens / p.train_seconds if p.train_seconds else None,
        "seconds_in_all": seconds,
        "skipped_steps": p.skipped_steps,
    }
    if peak_gib is not None:
        out["peak_memory_gib"] = peak_gib
    if p.best_step is not None:
        out |= {"best_step": p.best_step, "best_metric": p.best_metric}
    return out

