"""Keys that are right alone and wrong together. Errors name both; what TRL itself ignores is said, not refused."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.config.checking.activations import activations
from dynotune.config.checking.cadence import evaluation, saving, steps
from dynotune.config.checking.finding import Check, Finding, changed, idle, wrong
from dynotune.config.checking.speedups import speedups
from dynotune.config.reading.values import INIT_KWARGS_WITH_A_KEY
from dynotune.config.secrets import masked
from dynotune.printable import printable

if TYPE_CHECKING:
    from dynotune.config.sft import SFTConfig


def _data(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    if config.datasets:
        for key in ("dataset_name", "dataset_config"):
            if getattr(config, key) is not None:
                yield wrong(f"`{key}` and `datasets` both say what is trained on. Keep one.", key, "datasets")
        shares = [entry.fraction for entry in config.datasets]
        if any(share is not None for share in shares):
            if any(share is None for share in shares):
                yield wrong("`fraction` must be given for every entry of `datasets` or for none.", "datasets")
            elif not any(shares):
                yield wrong("every `fraction` of `datasets` is 0: no row is left to train on.", "datasets")
    if config.test_split_size is not None:
        if config.eval_dataset_name is not None:
            yield wrong(
                "`test_split_size` and `eval_dataset_name` both say what is evaluated. Keep one.",
                "test_split_size",
                "eval_dataset_name",
            )
        if config.test_split_size >= 1 and config.test_split_size != int(config.test_split_size):
            yield wrong(
                f"`test_split_size: {config.test_split_size}` is a share below 1 or a whole number of rows.",
                "test_split_size",
            )
    if config.max_length is None and config.truncation_mode != "keep_start":
        yield idle("`truncation_mode` does nothing with `max_length: null`, which cuts nothing.", "truncation_mode")


def _batch(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    factors = [key for key in ("per_device_train_batch_size", "gradient_accumulation_steps") if key in given]
    if config.global_batch_size is not None and factors:
        product = math.prod(getattr(config, key) for key in factors)
        agree = config.global_batch_size % product == 0
        if len(factors) == 2:
            agree = config.global_batch_size in (product, product * (config.gpus or 1))
        names = " x ".join(f"`{key}`" for key in factors)
        if not agree:
            yield wrong(
                f"`global_batch_size: {config.global_batch_size}` disagrees with {names} = {product}. Keep one way.",
                "global_batch_size",
                *factors,
            )
        else:
            yield idle(f"`global_batch_size` alone fixes the examples of a step; {names} adds nothing.", *factors)
    if config.max_steps > 0 and changed(config, "num_train_epochs"):
        yield idle("`max_steps` wins over `num_train_epochs`, as in TRL.", "max_steps", "num_train_epochs")
    setting, key = config.execution
    if setting == "off" and config.micro_batch_tokens is not None:
        yield idle(
            f"`micro_batch_tokens` does nothing with `{key}`, one document at a time.",
            "micro_batch_tokens",
            "packed_execution",
        )


def _packing(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    key = "packing" if config.packing else "eval_packing"
    if not (config.packing or config.packing_of_evaluation):
        if config.packing_strategy != "bfd" and "packing" not in given:
            yield idle("`packing_strategy` does nothing without `packing: true`, as in TRL.", "packing_strategy")
        return
    if config.max_length is None:
        yield wrong(
            f"`{key}: true` fills bins of `max_length` tokens, and `max_length: null` gives none. Give a length.",
            key,
            "max_length",
        )
    if config.truncation_mode == "keep_end":
        yield wrong(
            f"`truncation_mode: keep_end` cannot be used with `{key}: true`: TRL's packing always keeps the start. Remove "
            "one.",
            key,
            "truncation_mode",
        )


def _objective(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    if config.label_smoothing_factor > 0 and config.loss_type != "nll":
        yield wrong(
            f"`label_smoothing_factor` works with `loss_type: nll` only, not with `loss_type: {config.loss_type}`. "
            "Remove one.",
            "label_smoothing_factor",
            "loss_type",
        )


LORA_KEYS = (
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "lora_target_modules",
    "lora_target_parameters",
    "lora_modules_to_save",
    "use_rslora",
    "use_dora",
    "init_lora_weights",
)


def _adapter(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    if not config.use_peft:
        # Who writes `use_peft: false` beside them has switched the adapter off; who writes nothing has forgotten it.
        found = idle if "use_peft" in given else wrong
        for key in LORA_KEYS:
            if changed(config, key):
                yield found(
                    f"`{key}` does nothing without `use_peft: true`, which trains an adapter. Add it, or "
                    f"remove `{key}` to train all weights.",
                    key,
                    "use_peft",
                )
    elif config.lora_target_parameters and config.lora_dropout > 0:
        yield wrong(
            "`lora_target_parameters` cannot be used with dropout (PEFT refuses it). Write `lora_dropout: 0`.",
            "lora_target_parameters",
            "lora_dropout",
        )


def _model(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    inner = config.model_init_kwargs
    for name, key in INIT_KWARGS_WITH_A_KEY.items():
        if name in inner and key in given and inner[name] != getattr(config, key):
            yield wrong(
                f"`model_init_kwargs: {{{name}: {inner[name]}}}` disagrees with `{key}: {getattr(config, key)}`. "
                "Keep one.",
                "model_init_kwargs",
                key,
            )
    if config.bf16 and config.dtype == "float16":
        yield wrong("`bf16: true` disagrees with `dtype: float16`. Keep one.", "bf16", "dtype")
    if config.gradient_checkpointing_kwargs and config.gradient_checkpointing is None:
        yield idle(
            "`gradient_checkpointing_kwargs` waits for `gradient_checkpointing: true`: it is off unless asked for "
            "(TRL: on); the result is the same.",
            "gradient_checkpointing_kwargs",
        )
    elif config.gradient_checkpointing_kwargs and not config.gradient_checkpointing:
        yield idle(
            "`gradient_checkpointing_kwargs` does nothing with `gradient_checkpointing: false`.",
            "gradient_checkpointing_kwargs",
        )


def _schedule(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    if config.lr_scheduler_type == "constant" and config.warmup_steps > 0:
        yield idle(
            "`lr_scheduler_type: constant` ignores `warmup_steps`, as in transformers; use `constant_with_warmup`.",
            "lr_scheduler_type",
            "warmup_steps",
        )
    if config.lr_scheduler_type == "greedy":
        yield wrong(
            "`lr_scheduler_type: greedy` is refused: it moves by a metric at every step, and steps here do not wait for "
            "their numbers. Write `reduce_lr_on_plateau`, which moves by evaluations.",
            "lr_scheduler_type",
        )
    if config.lr_scheduler_type == "reduce_lr_on_plateau" and config.eval_strategy == "no":
        yield wrong(
            "`lr_scheduler_type: reduce_lr_on_plateau` needs evaluations, and `eval_strategy` is `no`.",
            "lr_scheduler_type",
            "eval_strategy",
        )


OPTIM_ARGS_READ = {
    "sgd": frozenset({"momentum", "dampening", "nesterov"}),
    "adagrad": frozenset({"lr_decay", "eps"}),
    "rmsprop": frozenset({"momentum", "alpha", "eps", "centered"}),
}
"""What transformers reads of `optim_args`, by optimizer; of those not named here, nothing. (It also takes `weight_decay` and
then gives each of its two groups another.)"""


NO_UPDATE = frozenset({"weight_decay", "fused", "foreach", "capturable"})
"""Said by itself, or a way to compute the same update."""


def _optimizer(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    keys = [part.partition("=")[0] for part in (config.optim_args or "").replace(" ", "").split(",") if part]
    if "weight_decay" in keys:
        yield idle("`weight_decay` inside `optim_args` does nothing, as in TRL: write it as a key.", "optim_args")
    read = OPTIM_ARGS_READ.get(config.optim, frozenset())
    if own := [key for key in keys if key not in read and key not in NO_UPDATE]:
        names = ", ".join(f"`{printable(masked(key), 40)}`" for key in own)
        yield idle(
            f"`optim_args`: {names} {'is' if len(own) == 1 else 'are'} passed on. TRL ignores this with `optim:"
            f" {config.optim}`, so its updates are others: remove it for the same.",
            "optim_args",
            "optim",
        )


def _run(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    if config.resume_from_checkpoint and config.overwrite_output_dir:
        yield wrong(
            "`resume_from_checkpoint` goes on with a run that `overwrite_output_dir` would replace. Keep one.",
            "resume_from_checkpoint",
            "overwrite_output_dir",
        )
    if config.resume_from_checkpoint is True and config.output_dir is None:
        yield wrong(
            "`resume_from_checkpoint: true` looks for checkpoints in `output_dir`, which is not given.",
            "resume_from_checkpoint",
            "output_dir",
        )
    hub_keys = [key for key in ("hub_model_id", "hub_private_repo", "hub_revision") if getattr(config, key) is not None]
    for key in hub_keys if not config.push_to_hub else ():
        if "push_to_hub" in given:
            yield idle(f"`{key}` does nothing with `push_to_hub: false`.", key, "push_to_hub")
        else:
            yield wrong(
                f"`{key}` does nothing without `push_to_hub: true`. Add it, or remove `{key}`.", key, "push_to_hub"
            )


OF_ALL: tuple[Check, ...] = (
    _data,
    _batch,
    activations,
    steps,
    _adapter,
    _model,
    _optimizer,
    _schedule,
    evaluation,
    saving,
    _run,
    speedups,
)
"""Of the topics that every method has."""

OF_SFT: tuple[Check, ...] = (_packing, _objective)
"""Of the keys that only SFT has."""
