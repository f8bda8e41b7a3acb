"""The fate of every field that TRL itself declares: its SFT, model, script and data set configurations."""

from typing import Any

from dynotune.config.fates.fate import Fate, honoured, mapped, refused, superseded

LATER_QLORA = "QLoRA is later work"
QLORA_INSTEAD = "remove it and train LoRA over a bfloat16 base (`use_peft: true`)"
LATER_STREAMING = (
    "the whole epoch is planned ahead from the lengths of its examples, so every row is read before the first step"
)
STREAMING_INSTEAD = "remove it; shards are read one row at a time, and only token ids are kept"


def _only_skips_preparation(value: Any) -> bool:
    return isinstance(value, dict) and set(value) <= {"skip_prepare_dataset"} and not value.get("skip_prepare_dataset")


SHARED: dict[str, Fate] = {
    "model_init_kwargs": honoured(
        "`dtype`, `attn_implementation`, `revision` and `trust_remote_code` inside it are the keys of these names;"
        " `device_map`, `quantization_config` and `use_kernels` are refused"
    ),
    "trust_remote_code": honoured(),
    "router_aux_loss_coef": refused(
        "the auxiliary loss of mixture-of-experts models is not added in this version",
        "remove it, or set it to 0.0",
        silent=(None, 0, 0.0),
    ),
    "dataset_num_proc": honoured(
        "unset, all cores work: by threads, and by processes where there is enough data for them (TRL: one process)"
    ),
    "max_length": honoured(),
    "truncation_mode": honoured(),
    "padding_free": mapped(
        "documents lie side by side without padding, or the run stops (`packed_execution: on`); unset, they do wherever "
        "the model can be packed",
        "packed_execution",
        default=False,
    ),
    "pad_to_multiple_of": superseded(
        "a micro-batch takes one of a few token counts, all multiples of 32, and one document at a time pads nothing",
        default="auto",
        silent=("auto", None, "none"),
    ),
    "pad_token": honoured(),
    "activation_offloading": mapped(
        "activations wait in the host's memory for the backward pass", "activation_offload", default=False
    ),
}

SFT_CONFIG: dict[str, Fate] = {
    **SHARED,
    "chat_template_path": honoured(),
    "dataset_text_field": honoured(),
    "dataset_kwargs": superseded(
        "pre-tokenised rows are recognised by their columns and need no `skip_prepare_dataset`",
        noop=_only_skips_preparation,
    ),
    "eos_token": honoured(),
    "shuffle_dataset": honoured(),
    "packing": honoured("*behavioural*: the plan says how many fewer updates it makes"),
    "packing_strategy": honoured("`bfd-requeue` is the old name of `bfd_split`"),
    "eval_packing": honoured("the loss is a mean over label tokens, so `bfd` changes it by what it cuts alone"),
    "completion_only_loss": honoured(),
    "assistant_only_loss": honoured(),
    "loss_type": honoured("`chunked_nll` is TRL's old name of `nll` and is taken as `nll`"),
}

MODEL_CONFIG: dict[str, Fate] = {
    "model_name_or_path": honoured(),
    "model_revision": honoured(),
    "dtype": honoured(
        "unset, LoRA on a GPU takes a bfloat16 base, full fine-tuning float32 masters with bfloat16 compute, and the "
        "CPU float32 (TRL: float32, also for a frozen base)"
    ),
    "attn_implementation": honoured(
        "names of kernels ask packed execution for its own: `flash_attention_2` and others"
    ),
    "use_peft": honoured(),
    "lora_r": honoured(),
    "lora_alpha": honoured(),
    "lora_dropout": honoured(),
    "lora_target_modules": honoured(
        "a list of one plain name stays a list; TRL turns it into a regular expression that matches no module"
    ),
    "lora_target_parameters": honoured(),
    "lora_modules_to_save": honoured(),
    "lora_task_type": honoured("`CAUSAL_LM` only"),
    "use_rslora": honoured(),
    "use_dora": honoured(),
    "load_in_8bit": refused(LATER_QLORA, QLORA_INSTEAD, default=False),
    "load_in_4bit": refused(LATER_QLORA, QLORA_INSTEAD, default=False),
    "bnb_4bit_quant_type": refused(LATER_QLORA, QLORA_INSTEAD, default="nf4", silent=("nf4", "fp4")),
    "use_bnb_nested_quant": refused(LATER_QLORA, QLORA_INSTEAD, default=False),
    "bnb_4bit_quant_storage": refused(LATER_QLORA, QLORA_INSTEAD),
}

SCRIPT_ARGUMENTS: dict[str, Fate] = {
    "dataset_name": honoured("also takes a file, a folder or a glob"),
    "dataset_config": honoured(),
    "dataset_train_split": honoured(),
    "dataset_test_split": honoured(),
    "dataset_streaming": refused(LATER_STREAMING, STREAMING_INSTEAD, default=False),
    "ignore_bias_buffers": superseded("it works around DistributedDataParallel, which is not used", default=False),
}

MIXTURE_CONFIG: dict[str, Fate] = {
    "datasets": honoured(),
    "streaming": refused(LATER_STREAMING, STREAMING_INSTEAD, default=False),
    "test_split_size": honoured("also works with `dataset_name`; the rows are chosen by `seed`"),
}

DATASET_CONFIG: dict[str, Fate] = {
    "path": honoured("also takes a file, a folder or a glob"),
    "name": honoured(),
    "data_dir": honoured(),
    "data_files": honoured(),
    "split": honoured(),
    "columns": honoured("a list keeps these columns, as in TRL; a mapping renames them"),
    "fraction": honoured(),
}
