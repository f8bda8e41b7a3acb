"""Nothing silent: keys that cannot be honoured together are an error that names them; idle keys are said."""

from typing import Any

import pytest

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError

EVALUATED = {"eval_strategy": "steps", "eval_steps": 50}

WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"load_best_model_at_end": True}, ["load_best_model_at_end", "eval_strategy"]),
    ({"load_best_model_at_end": True, "eval_strategy": "epoch"}, ["save_strategy: steps", "eval_strategy: epoch"]),
    ({"load_best_model_at_end": True, **EVALUATED, "save_steps": 75}, ["save_steps: 75", "eval_steps: 50", "multiple"]),
    ({"load_best_model_at_end": True, **EVALUATED, "save_steps": 0.5}, ["save_steps: 0.5", "share"]),
    ({"load_best_model_at_end": True, "eval_strategy": "steps", "save_steps": 15}, ["logging_steps: 10"]),
    ({"save_strategy": "best"}, ["save_strategy: best", "eval_strategy"]),
    ({"early_stopping_patience": 3}, ["early_stopping_patience", "eval_strategy"]),
    ({"early_stopping_threshold": 0.1, **EVALUATED}, ["early_stopping_threshold", "early_stopping_patience"]),
    ({"eval_dataset_name": "a.jsonl"}, ["eval_dataset_name", "eval_strategy"]),
    ({"eval_samples": 3}, ["eval_samples", "eval_strategy"]),
    ({"eval_sample_max_new_tokens": 3, **EVALUATED}, ["eval_sample_max_new_tokens", "eval_samples"]),
    ({"label_smoothing_factor": 0.1, "loss_type": "dft"}, ["label_smoothing_factor", "loss_type: dft"]),
    ({"lora_r": 8}, ["lora_r", "use_peft: true"]),
    ({"use_dora": True}, ["use_dora", "use_peft: true"]),
    ({"use_peft": True, "lora_target_parameters": ["w"]}, ["lora_target_parameters", "lora_dropout"]),
    ({"dataset_name": "a", "datasets": [{"path": "b"}]}, ["dataset_name", "datasets"]),
    ({"datasets": [{"path": "a", "fraction": 0.5}, {"path": "b"}]}, ["fraction"]),
    ({"test_split_size": 0.1, "eval_dataset_name": "a", **EVALUATED}, ["test_split_size", "eval_dataset_name"]),
    ({"test_split_size": 1.5}, ["test_split_size: 1.5"]),
    (
        {"global_batch_size": 8, "per_device_train_batch_size": 3},
        ["global_batch_size: 8", "per_device_train_batch_size"],
    ),
    (
        {"global_batch_size": 16, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "gpus": 4},
        ["global_batch_size: 16", "gradient_accumulation_steps", "8"],
    ),
    (
        {"global_batch_size": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
        ["global_batch_size: 8", "gradient_accumulation_steps", "16"],
    ),
    ({"packing": True, "max_length": None}, ["packing: true", "max_length: null"]),
    ({"eval_packing": True, "max_length": None}, ["eval_packing: true", "max_length: null"]),
    ({"packing": True, "truncation_mode": "keep_end"}, ["packing: true", "truncation_mode: keep_end"]),
    ({"logging_steps": 1.5}, ["logging_steps: 1.5", "whole number"]),
    ({"hub_model_id": "a/b"}, ["hub_model_id", "push_to_hub: true"]),
    ({"resume_from_checkpoint": True}, ["resume_from_checkpoint", "output_dir"]),
    (
        {"resume_from_checkpoint": "x", "overwrite_output_dir": True, "output_dir": "y"},
        ["resume_from_checkpoint", "overwrite_output_dir"],
    ),
    ({"bf16": True, "dtype": "float16"}, ["bf16: true", "dtype: float16"]),
    ({"dtype": "float32", "model_init_kwargs": {"dtype": "bfloat16"}}, ["model_init_kwargs", "dtype: float32"]),
    (
        {"trust_remote_code": False, "model_init_kwargs": {"trust_remote_code": True}},
        ["model_init_kwargs", "trust_remote_code: False"],
    ),
    ({"model_init_kwargs": {"dtype": "float99"}}, ["dtype", "float99"]),
    ({"model_init_kwargs": {"device_map": "auto"}}, ["device_map", "one device"]),
    ({"model_init_kwargs": {"quantization_config": {"a": 1}}}, ["quantization_config", "QLoRA"]),
    ({"lr_scheduler_type": "reduce_lr_on_plateau"}, ["lr_scheduler_type", "eval_strategy"]),
    ({"loss_type": "sigmoid"}, ["loss_type", "DPO"]),
    ({"train_sampling_strategy": "group_by_length"}, ["train_sampling_strategy", "share a step"]),
    ({"num_machines": 8}, ["num_machines: 8", "later work"]),
    ({"accelerate_config": "fsdp2"}, ["accelerate_config", "single_gpu"]),
    ({"load_in_4bit": True}, ["load_in_4bit", "QLoRA is later work"]),
    ({"num_train_epochs": 0}, ["num_train_epochs: 0", "above 0"]),
]


@pytest.mark.parametrize(("given", "named"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_error_names_the_keys(given: dict[str, Any], named: list[str]) -> None:
    """Each of these would otherwise drop a key or train something else."""
    with pytest.raises(ConfigError) as caught:
        SFTConfig(**given)
    for words in named:
        assert words in str(caught.value)


FINE: list[dict[str, Any]] = [
    {"load_best_model_at_end": True, **EVALUATED, "save_steps": 100},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.05, "save_steps": 0.1},
    {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"},
    {"load_best_model_at_end": True, **EVALUATED, "save_strategy": "best"},
    {"eval_on_start": True, "eval_dataset_name": "a"},
    {"early_stopping_patience": 3, "early_stopping_threshold": 0.1, **EVALUATED},
    {"label_smoothing_factor": 0.1},
    {"lora_r": 16, "lora_alpha": 32, "use_peft": False},
    {"use_peft": True, "lora_target_parameters": ["w"], "lora_dropout": 0},
    {"global_batch_size": 32},
    {"num_processes": 1, "accelerate_config": "single_gpu", "mixed_precision": "no"},
    {"packing": False, "packing_strategy": "wrapped"},
    {"packing": True, "packing_strategy": "bfd_split", "eval_packing": False},
    {"packed_execution": "on", "micro_batch_tokens": 8192},
    {"use_peft": True, "use_dora": True, "use_rslora": True},
    {"dtype": "float32", "model_init_kwargs": {"dtype": "float32"}},
    {"assistant_only_loss": True, "completion_only_loss": True},
    {"optim": "sgd", "optim_args": "momentum=0.9, nesterov=true"},
    {"test_split_size": 0.1, "eval_on_start": True},
    {"test_split_size": 100, **EVALUATED},
]


@pytest.mark.parametrize("given", FINE, ids=str)
def test_what_fits_is_accepted_without_a_word(given: dict[str, Any]) -> None:
    """Negative control: the checks above do not refuse what can be carried out."""
    assert SFTConfig(**given).notices == []


IDLE: list[tuple[dict[str, Any], str]] = [
    ({"test_split_size": 0.1}, "neither trained on nor evaluated"),
    ({"packing_strategy": "wrapped"}, "`packing_strategy` does nothing without `packing: true`"),
    ({"packed_execution": "off", "micro_batch_tokens": 512}, "`micro_batch_tokens` does nothing"),
    ({"max_steps": 5, "num_train_epochs": 1}, "`max_steps` wins over `num_train_epochs`"),
    ({"eval_steps": 5}, "`eval_steps` does nothing with `eval_strategy: no`"),
    ({"save_strategy": "no", "save_steps": 5}, "`save_steps` does nothing with `save_strategy: no`"),
    ({"hub_model_id": "a/b", "push_to_hub": False}, "`hub_model_id` does nothing with `push_to_hub: false`"),
    ({"lr_scheduler_type": "constant", "warmup_steps": 5}, "ignores `warmup_steps`"),
    ({"metric_for_best_model": "loss"}, "`metric_for_best_model` does nothing"),
    ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, "waits for `gradient_checkpointing: true`"),
    ({"global_batch_size": 32, "per_device_train_batch_size": 8}, "`global_batch_size` alone"),
    (
        {"global_batch_size": 16, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "gpus": 2},
        "`global_batch_size` alone",
    ),
    ({"max_length": None, "truncation_mode": "keep_end"}, "`truncation_mode` does nothing"),
    ({"max_steps": 0}, "in TRL one step (with the linear schedule at a learning rate of 0)"),
    ({"max_steps": -4}, "means whole epochs (`num_train_epochs`), as in TRL"),
    ({"dataloader_drop_last": True, **EVALUATED}, "held-out data is evaluated whole"),
    ({"optim_args": "amsgrad=True"}, "TRL ignores this with `optim: adamw_torch_fused`"),
    ({"optim": "sgd", "optim_args": "momentum=0.9, maximize=False"}, "`optim_args`: `maximize` is passed on"),
    ({"optim": "rmsprop", "optim_args": "weight_decay=0.1"}, "`weight_decay` inside `optim_args` does nothing"),
]


@pytest.mark.parametrize(("given", "said"), IDLE, ids=[str(given) for given, _ in IDLE])
def test_a_key_without_effect_is_said(given: dict[str, Any], said: str) -> None:
    """TRL takes these and is silent; its files run unchanged here, and the user is told."""
    assert [said in notice for notice in SFTConfig(**given).notices] == [True]


def test_names_of_optimizer_arguments_cannot_control_the_terminal() -> None:
    (said,) = [one for one in SFTConfig(optim_args="a\x1b[31m=1").notices if "optim_args" in one]
    assert "\x1b" not in said


def test_arguments_that_compute_the_same_update_are_not_called_another() -> None:
    assert not [one for one in SFTConfig(optim_args="fused=False,foreach=True").notices if "optim_args" in one]


@pytest.mark.parametrize("yes", ["yes", "true", "on", "1", 1, "Y"])
def test_foreign_code_is_warned_of_however_it_is_asked_for(yes: Any) -> None:
    config = SFTConfig(model_init_kwargs={"trust_remote_code": yes})
    assert config.trust_remote_code is True
    assert any("runs Python code" in one for one in config.notices)


def test_a_broken_key_is_not_blamed_twice() -> None:
    """One mistake, one line: combinations of a key whose value is wrong already are not reported."""
    with pytest.raises(ConfigError) as caught:
        SFTConfig(load_best_model_at_end=True, eval_strategy="stepps")  # type: ignore[arg-type]
    assert "did you mean" in str(caught.value).lower()
    assert "needs" not in str(caught.value)


@pytest.mark.parametrize("config", [SFTConfig, DPOConfig])
def test_arguments_of_loading_that_have_a_key_are_that_key(config: type[SFTConfig] | type[DPOConfig]) -> None:
    """As in TRL, where they win over the key that nobody gave; every reader of the key sees them."""
    inner = {"dtype": "bfloat16", "attn_implementation": "eager", "revision": "v2", "trust_remote_code": True, "a": 1}
    made = config(model_init_kwargs=inner, dtype=None)
    assert (made.dtype, made.attn_implementation, made.model_revision) == ("bfloat16", "eager", "v2")
    assert made.model_init_kwargs == {"a": 1}
    assert made.trust_remote_code
    assert "rights" in made.notices[0]
    assert config(model_init_kwargs={"torch_dtype": "float32"}).dtype == "float32"
    assert made.replace(seed=3).dtype == "bfloat16"
