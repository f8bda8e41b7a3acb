"""Values of honoured keys that TRL knows and we write otherwise or cannot carry out."""

import difflib
import os
from collections.abc import Mapping
from typing import Any

from dynotune.config.fates.dpo import DPO
from dynotune.config.fates.names import DPO_LOSSES, OPTIMIZERS, SCHEDULES, SUPPORTED_OPTIMIZERS
from dynotune.config.fates.trl import LATER_QLORA
from dynotune.config.method import Rule, Said
from dynotune.config.variables import refuse_variables

INIT_KWARGS_REFUSED: Mapping[str, str] = {
    "device_map": "the model is placed on one device, never spread by layers; remove it",
    "quantization_config": f"{LATER_QLORA}; remove it",
    "load_in_4bit": f"{LATER_QLORA}; remove it",
    "load_in_8bit": f"{LATER_QLORA}; remove it",
    "use_kernels": "kernels are speed-ups here, chosen under `speedups`; remove it, the result is the same",
    "tp_plan": "sharding over several GPUs is later work; remove it",
    "config": "the configuration comes with the model; remove it",
    "state_dict": "the weights come with the model; remove it",
}

INIT_KWARGS_WITH_A_KEY: Mapping[str, str] = {
    "dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "revision": "model_revision",
    "trust_remote_code": "trust_remote_code",
}
"""Arguments of `from_pretrained` that are keys of their own, under the name that they have there."""


def taken(key: str, value: Any, own: Mapping[str, Rule]) -> tuple[Any, Said]:
    """The value as it is honoured, and what to say about it. `own` are the rules of the method itself.

    Raises:
        ValueError: the value cannot be carried out; the message is the reason with the remedy.
    """
    rule = own.get(key) or _RULES.get(key)
    return rule(value) if rule is not None else (value, None)


def sft_loss(value: Any) -> tuple[Any, Said]:
    """`loss_type` of SFT."""
    if value == "chunked_nll":
        return "nll", "`loss_type: chunked_nll` is TRL's old name of `nll`, which computes the same loss."
    names = value if isinstance(value, list) else [value]
    if any(isinstance(name, str) and name in DPO_LOSSES for name in names):
        raise ValueError(f"it is a loss of DPO. {DPO}; SFT takes `nll` or `dft`")
    return value, None


def _train_sampling_strategy(value: Any) -> tuple[Any, Said]:
    if value == "batch_rebalance":
        return "random", (
            "`train_sampling_strategy: batch_rebalance` is taken as `random`: it moves examples between devices inside "
            "a step, and there is one device."
        )
    if value == "group_by_length":
        raise ValueError("it changes which examples share a step; use `random`, nothing is padded anyway")
    return value, None


def _packing_strategy(value: Any) -> tuple[Any, Said]:
    if value == "bfd-requeue":
        return "bfd_split", "`packing_strategy: bfd-requeue` is TRL's old name of `bfd_split` and is taken as such."
    return value, None


def _hub_strategy(value: Any) -> tuple[Any, Said]:
    if value in ("checkpoint", "all_checkpoints"):
        raise ValueError("checkpoints stay in the run folder; use `end` or `every_save`, which push the model")
    return value, None


def _lora_task_type(value: Any) -> tuple[Any, Said]:
    if value in ("SEQ_CLS", "SEQ_2_SEQ_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"):
        raise ValueError("only causal language models are trained; write `CAUSAL_LM` or remove it")
    return value, None


def _max_steps(value: Any) -> tuple[Any, Said]:
    number = _number(value)
    if number is not None and number <= 0 and number != -1:
        in_trl = "as in TRL" if number else "and in TRL one step (with the linear schedule at a learning rate of 0)"
        return -1, f"`max_steps: {value}` means whole epochs (`num_train_epochs`), {in_trl}."
    return value, None


def _zero_is_unset(key: str, meaning: str) -> Rule:
    def rule(value: Any) -> tuple[Any, Said]:
        number = _number(value)
        if number is not None and number == 0:
            return None, f"`{key}: {value}` {meaning}."
        return value, None

    return rule


def _save_total_limit(value: Any) -> tuple[Any, Said]:
    number = _number(value)
    if number is not None and number <= 0:
        return None, f"`save_total_limit: {value}` keeps every checkpoint, as in TRL."
    return value, None


def _report_to(value: Any) -> tuple[Any, Said]:
    return ("none" if value in ([], ["none"], None, "") else value), None


def _dtype(value: Any) -> tuple[Any, Said]:
    if value is None:
        return None, None
    name = str(value).removeprefix("torch.")
    short = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
    if name in short:
        raise ValueError(f"write `{short[name]}`")
    return name, None


def _output_dir(value: Any) -> tuple[Any, Said]:
    # TRL expands the home folder too.
    return (os.path.expanduser(value) if isinstance(value, str) else value), None  # noqa: PTH111


def _one_of(known: tuple[str, ...], what: str) -> Rule:
    def rule(value: Any) -> tuple[Any, Said]:
        if isinstance(value, str) and value not in known:
            close = difflib.get_close_matches(value.lower(), known, n=1, cutoff=0.6)
            hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"transformers has no {what} of this name; {hint}")
        return value, None

    return rule


def _optim(value: Any) -> tuple[Any, Said]:
    _one_of(OPTIMIZERS, "optimizer")(value)
    if isinstance(value, str) and value not in SUPPORTED_OPTIMIZERS:
        raise ValueError(
            f"this version has {', '.join(SUPPORTED_OPTIMIZERS)}; another optimizer changes what is learned, so none is"
            " put in its place"
        )
    return value, None


def _model_init_kwargs(value: Any) -> tuple[Any, Said]:
    if isinstance(value, dict):
        for name, reason in INIT_KWARGS_REFUSED.items():
            if value.get(name):
                raise ValueError(f"`{name}` is refused: {reason}")
        if "torch_dtype" in value:
            value = {"dtype" if name == "torch_dtype" else name: item for name, item in value.items()}
        if "dtype" in value:
            value = {**value, "dtype": _dtype(value["dtype"])[0]}
    return value, None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _trust_remote_code(value: Any) -> tuple[Any, Said]:
    if value == 1:  # true, or the number that is taken for it
        return True, (
            "`trust_remote_code: true` runs Python code that the model's or tokenizer's repository brings, with all your"
            " rights. `model_revision` with a commit's hash keeps it the code that you have read."
        )
    return value, None


def _env(value: Any) -> tuple[Any, Said]:
    if isinstance(value, dict):
        refuse_variables(value)
    return value, None


_RULES: Mapping[str, Rule] = {
    "train_sampling_strategy": _train_sampling_strategy,
    "packing_strategy": _packing_strategy,
    "hub_strategy": _hub_strategy,
    "lora_task_type": _lora_task_type,
    "max_steps": _max_steps,
    "eval_steps": _zero_is_unset("eval_steps", "means `logging_steps`, as in TRL"),
    "neftune_noise_alpha": _zero_is_unset("neftune_noise_alpha", "adds no noise"),
    "save_total_limit": _save_total_limit,
    "report_to": _report_to,
    "dtype": _dtype,
    "output_dir": _output_dir,
    "optim": _optim,
    "lr_scheduler_type": _one_of(SCHEDULES, "schedule"),
    "env": _env,
    "trust_remote_code": _trust_remote_code,
    "model_init_kwargs": _model_init_kwargs,
}
