"""When to log, evaluate and save, and which of these need each other. transformers' rules, with both keys named."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.config.checking.finding import Finding, changed, idle, wrong

if TYPE_CHECKING:
    from dynotune.config.sft import SFTConfig


def steps(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    """Numbers of steps are whole, or a share below 1; they count only where their strategy is `steps`."""
    for key in ("logging_steps", "eval_steps", "save_steps", "warmup_steps"):
        value = getattr(config, key)
        if value is not None and value > 1 and value != int(value):
            yield wrong(f"`{key}: {value}` must be a whole number, or a share of all steps below 1.", key)
    for key, strategy in (("eval_steps", "eval_strategy"), ("save_steps", "save_strategy")):
        chosen = getattr(config, strategy)
        if changed(config, key) and chosen != "steps":
            yield idle(f"`{key}` does nothing with `{strategy}: {chosen}`.", key, strategy)
    if changed(config, "logging_steps") and config.logging_strategy != "steps":
        text = f"`logging_steps` does nothing with `logging_strategy: {config.logging_strategy}`."
        yield idle(text, "logging_steps", "logging_strategy")


def evaluation(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    """What needs evaluations, where there are none."""
    if config.eval_strategy == "no":
        needs = {
            "load_best_model_at_end": config.load_best_model_at_end,
            "early_stopping_patience": config.early_stopping_patience is not None,
            "save_strategy": config.save_strategy == "best",
            "eval_samples": config.eval_samples > 0 and not config.eval_on_start,
            "eval_dataset_name": config.eval_dataset_name is not None and not config.eval_on_start,
        }
        for key in (key for key, asked in needs.items() if asked):
            shown = f"`{key}: best`" if key == "save_strategy" else f"`{key}`"
            yield wrong(
                f"{shown} needs evaluations, and `eval_strategy` is `no`. Write `eval_strategy: steps` (or `epoch`), "
                f"or remove `{key}`.",
                key,
                "eval_strategy",
            )
        if config.test_split_size is not None and not config.eval_on_start:
            yield idle(
                "the rows that `test_split_size` holds out are neither trained on nor evaluated: `eval_strategy` is `no`.",
                "test_split_size",
                "eval_strategy",
            )
        if config.eval_delay > 0:
            yield idle("`eval_delay` does nothing with `eval_strategy: no`.", "eval_delay", "eval_strategy")
    elif config.dataloader_drop_last:
        yield idle(
            "`dataloader_drop_last` is of the training data: held-out data is evaluated whole (TRL leaves out its last,"
            " smaller batch too).",
            "dataloader_drop_last",
            "eval_strategy",
        )
    if config.early_stopping_threshold > 0 and config.early_stopping_patience is None:
        yield wrong(
            "`early_stopping_threshold` does nothing without `early_stopping_patience`. Add it, or remove this.",
            "early_stopping_threshold",
            "early_stopping_patience",
        )
    if changed(config, "eval_sample_max_new_tokens") and not config.eval_samples:
        yield wrong(
            "`eval_sample_max_new_tokens` does nothing without `eval_samples`. Add it, or remove the length.",
            "eval_sample_max_new_tokens",
            "eval_samples",
        )
    best_is_used = (
        config.load_best_model_at_end
        or config.early_stopping_patience is not None
        or config.save_strategy == "best"
        or config.lr_scheduler_type == "reduce_lr_on_plateau"
    )
    for key in ("metric_for_best_model", "greater_is_better"):
        if getattr(config, key) is not None and not best_is_used:
            yield idle(f"`{key}` does nothing without `load_best_model_at_end` or early stopping.", key)


def saving(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    """The best checkpoint can only be kept if every save meets an evaluation."""
    if config.save_total_limit is not None and config.save_strategy == "no":
        yield idle("`save_total_limit` does nothing with `save_strategy: no`.", "save_total_limit", "save_strategy")
    if not config.load_best_model_at_end or config.save_strategy == "best" or config.eval_strategy == "no":
        return
    if config.save_strategy != config.eval_strategy:
        yield wrong(
            f"`load_best_model_at_end` needs an evaluation at every save, but `save_strategy: {config.save_strategy}` "
            f"and `eval_strategy: {config.eval_strategy}` differ. Give both the same, or write `save_strategy: best`.",
            "load_best_model_at_end",
            "save_strategy",
            "eval_strategy",
        )
        return
    if config.save_strategy != "steps":
        return
    every = config.eval_steps if config.eval_steps is not None else config.logging_steps
    if (every < 1) != (config.save_steps < 1):
        why = "one is a share and one a number of steps"
    elif not _is_multiple(config.save_steps, every):
        why = f"{config.save_steps:g} is no multiple of {every:g}"
    else:
        return
    named = "eval_steps" if config.eval_steps is not None else "logging_steps"
    yield wrong(
        f"`load_best_model_at_end` needs an evaluation at every save: `save_steps: {config.save_steps:g}` must be a "
        f"multiple of `{named}: {every:g}` ({why}).",
        "load_best_model_at_end",
        "save_steps",
        named,
    )


def _is_multiple(save: float, evaluate: float) -> bool:
    # Shares are compared in millionths: 0.1 is no exact multiple of 0.05 in binary.
    save_millionths, evaluate_millionths = round(save * 1_000_000), round(evaluate * 1_000_000)
    return evaluate_millionths > 0 and save_millionths % evaluate_millionths == 0
