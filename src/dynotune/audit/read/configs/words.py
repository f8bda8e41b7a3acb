"""A trainer's own names and values in TRL's words."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.setting import Unknown


@dataclass(frozen=True, slots=True)
class Word:
    """What one key of a trainer is called in TRL's words."""

    name: str
    value: Callable[[Any], Any] = lambda value: value
    """Our value from theirs. `SAYS_NOTHING`: this value sets nothing."""


SAYS_NOTHING = object()


def says(name: str, answers: Mapping[Any, Any]) -> Word:
    """Values by a table; others stay, and what cannot be looked up too."""
    return Word(name, lambda value: answers.get(value, value) if isinstance(value, str | bool | int | float) else value)


def opposite(name: str) -> Word:
    return Word(name, lambda value: not value if isinstance(value, bool) else value)


def when_true(name: str, ours: Any) -> Word:
    """A switch of theirs that is one of several values here."""
    return Word(name, lambda value: ours if value is True else SAYS_NOTHING)


def constant(name: str, ours: Any) -> Word:
    return Word(name, lambda value: ours)


def _adapter(value: Any) -> Any:
    return str(value).lower() in {"lora", "qlora"} if value else False


def _modules(value: Any) -> Any:
    if isinstance(value, str):
        names = [name.strip() for name in value.split(",") if name.strip()]
        return "all-linear" if names == ["all"] else names if len(names) > 1 else value
    return value


def _first(value: Any) -> Any:
    """The first of several entries' paths, where entries are mappings with one."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return value[0].get("path", SAYS_NOTHING)
    return SAYS_NOTHING


def _packing_of_neat(value: Any) -> Any:
    return True if value is True else SAYS_NOTHING


AXOLOTL: Mapping[str, tuple[Word, ...]] = {
    "base_model": (Word("model_name_or_path"),),
    "model_revision": (Word("model_revision"),),
    "revision_of_model": (Word("model_revision"),),
    "sequence_len": (Word("max_length"),),
    "micro_batch_size": (Word("per_device_train_batch_size"),),
    "eval_batch_size": (Word("per_device_eval_batch_size"),),
    "num_epochs": (Word("num_train_epochs"),),
    "optimizer": (Word("optim"),),
    "lr_scheduler": (Word("lr_scheduler_type"),),
    "adapter": (Word("use_peft", _adapter),),
    "lora_target_linear": (when_true("lora_target_modules", "all-linear"),),
    "peft_use_dora": (Word("use_dora"),),
    "peft_use_rslora": (Word("use_rslora"),),
    "peft_init_lora_weights": (Word("init_lora_weights"),),
    "sample_packing": (Word("packing"),),
    "eval_sample_packing": (Word("eval_packing"),),
    "flash_attention": (when_true("attn_implementation", "flash_attention_2"),),
    "sdp_attention": (when_true("attn_implementation", "sdpa"),),
    "xformers_attention": (when_true("attn_implementation", "xformers"),),
    "eager_attention": (when_true("attn_implementation", "eager"),),
    "flex_attention": (when_true("attn_implementation", "flex_attention"),),
    "sage_attention": (when_true("attn_implementation", "sage"),),
    "bf16": (says("bf16", {"auto": True, "full": True}),),
    "bfloat16": (says("bf16", {"auto": True, "full": True}),),
    "fp16": (says("fp16", {"auto": True}),),
    "torch_dtype": (Word("dtype"),),
    "train_on_inputs": (opposite("completion_only_loss"),),
    "val_set_size": (Word("test_split_size"),),
    "datasets": (Word("datasets"), Word("dataset_name", _first)),
    "dataset_processes": (Word("dataset_num_proc"),),
    "rl_beta": (Word("beta"),),
    "dpo_beta": (Word("beta"),),
    "dpo_loss_type": (Word("loss_type"),),
    "dpo_label_smoothing": (Word("label_smoothing"),),
    "evaluation_strategy": (Word("eval_strategy"),),
    "noisy_embedding_alpha": (Word("neftune_noise_alpha"),),
    "wandb_project": (constant("report_to", "wandb"),),
    "use_wandb": (when_true("report_to", "wandb"),),
    "liger_fused_linear_cross_entropy": (Word("use_liger_kernel"),),
}
LLAMA_FACTORY: Mapping[str, tuple[Word, ...]] = {
    "cutoff_len": (Word("max_length"),),
    "dataset": (Word("dataset_name"),),
    "eval_dataset": (Word("eval_dataset_name"),),
    "finetuning_type": (Word("use_peft", _adapter),),
    "lora_rank": (Word("lora_r"),),
    "lora_target": (Word("lora_target_modules", _modules),),
    "additional_target": (Word("lora_modules_to_save", _modules),),
    "quantization_bit": (
        Word("load_in_4bit", lambda value: value == 4),
        Word("load_in_8bit", lambda value: value == 8),
    ),
    "flash_attn": (
        says(
            "attn_implementation",
            {"fa2": "flash_attention_2", "fa3": "flash_attention_3", "disabled": "eager", False: "eager", "auto": None},
        ),
    ),
    "disable_gradient_checkpointing": (opposite("gradient_checkpointing"),),
    "enable_liger_kernel": (Word("use_liger_kernel"),),
    "neat_packing": (Word("packing", _packing_of_neat),),
    "pure_bf16": (when_true("dtype", "bfloat16"),),
    "preprocessing_num_workers": (Word("dataset_num_proc"),),
    "val_size": (Word("test_split_size"),),
    "train_on_prompt": (opposite("completion_only_loss"),),
    "evaluation_strategy": (Word("eval_strategy"),),
    "pref_beta": (Word("beta"),),
    "pref_loss": (Word("loss_type"),),
    "dpo_label_smoothing": (Word("label_smoothing"),),
    "overwrite_cache": (),
}
OPEN_INSTRUCT: Mapping[str, tuple[Word, ...]] = {
    "max_seq_length": (Word("max_length"),),
    "lora_rank": (Word("lora_r"),),
    "use_lora": (Word("use_peft"),),
    "use_qlora": (Word("load_in_4bit"),),
    "use_flash_attn": (Word("attn_implementation", lambda value: "flash_attention_2" if value is True else "sdpa"),),
    "dpo_beta": (Word("beta"),),
    "dpo_loss_type": (says("loss_type", {"dpo": "sigmoid"}),),
    "dataset_mixer_list": (
        Word("dataset_name", lambda value: value[0] if isinstance(value, list) and value else value),
    ),
    "preprocessing_num_workers": (Word("dataset_num_proc"),),
    "fused_optimizer": (says("optim", {True: "adamw_torch_fused", False: "adamw_torch"}),),
}
TRL: Mapping[str, tuple[Word, ...]] = {
    "torch_dtype": (Word("dtype"),),
    "max_seq_length": (Word("max_length"),),
    "evaluation_strategy": (Word("eval_strategy"),),
    "activation_checkpointing": (Word("gradient_checkpointing"),),
    "activation_checkpointing_kwargs": (Word("gradient_checkpointing_kwargs"),),
    "use_liger": (Word("use_liger_kernel"),),
    "no_cuda": (Word("use_cpu"),),
}


def in_our_words(name: str, value: Any, words: Mapping[str, tuple[Word, ...]]) -> Iterator[tuple[str, Any]]:
    """Names and values that one key of a trainer comes to; itself where the trainer has TRL's name for it."""
    for word in words.get(name, (Word(name),)):
        ours = value if isinstance(value, Unknown) else word.value(value)
        if ours is not SAYS_NOTHING:
            yield word.name, ours
