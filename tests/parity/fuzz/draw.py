"""Random, valid settings of `trl sft`: a model, a tokenizer, rows and a configuration, all from one seed."""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.parity.fuzz.rows import FORMS, TEXTUAL, Row, rows_of
from tests.parity.fuzz.shapes import BY_PROJECTION, EXPERTS, OFTEN, SHAPES, TEMPLATES, WITHOUT_BOUNDARIES

REAL = {"olmo-50k": 50_304, "dolma2-100k": 100_352, "qwen-152k": 151_936}
"""Real tokenizers, where a machine has them, with the rows that an embedding has for each."""


@dataclass
class Draw:
    """One case of the fuzz."""

    seed: int
    kind: str
    shape: dict[str, Any]
    tokenizer: dict[str, Any]
    form: str
    rows: list[Row]
    held_out: list[Row]
    settings: dict[str, Any]
    """What the file says, without model, data and folder."""

    template: str | None = None
    """The content of the file that `chat_template_path` names."""

    mixture: bool = False
    """Whether the rows come as two entries of `datasets`."""

    peft: dict[str, Any] | None = None
    """A `LoraConfig` given in Python."""

    same_adapter: bool = False
    """Whether both sides get the same adapter, with no matrix of zeros, before the first step."""

    ours: dict[str, Any] = field(default_factory=dict)
    """Keys that TRL has not."""


def draw(seed: int, real: bool = False) -> Draw:
    """real: with a real tokenizer."""
    r = random.Random(seed)
    kind = r.choice(OFTEN) if r.random() < 0.5 else r.choice(list(SHAPES))
    shape = dict(SHAPES[kind])
    if r.random() < 0.3:
        shape["tie_word_embeddings"] = r.random() < 0.5
    if r.random() < 0.3:
        shape["pad_token_id"] = r.choice([None, 1])
    form = r.choice(TEXTUAL if real else ["text", "prompt", "messages", "messages", *OTHER_FORMS])
    tokenizer: dict[str, Any] = {
        "template": "tools" if form in WITH_TOOLS else r.choice(list(TEMPLATES)),
        "bos": r.random() < 0.3,
        "pad": r.choice(["<pad>", "<pad>", None, "<eos>"]),
        "side": "left" if r.random() < 0.15 else "right",
    }
    if real:
        tokenizer = {"real": r.choice(list(REAL))}
        shape["vocab_size"] = REAL[tokenizer["real"]]
    s: dict[str, Any] = {
        "learning_rate": r.choice([1e-4, 5e-4, 1e-3]),
        "per_device_train_batch_size": r.choice([1, 1, 2, 3]),
        "gradient_accumulation_steps": r.choice([1, 1, 2, 3]),
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "use_cpu": True,
        "bf16": r.random() < 0.05,
        "disable_tqdm": True,
        "gradient_checkpointing": r.random() < 0.2,
    }
    d = Draw(seed, kind, shape, tokenizer, form, rows_of(form, r, r.choice([8, 10, 15, 24])), [], s)
    d.ours = {"on_bad_row": "skip", "packed_execution": r.choice(["auto", "auto", "off"])}
    for part in (_steps, _content, _optimizer, _adapter, _evaluation, _rest):
        part(r, d)
    if real:
        s["max_length"], s["max_steps"] = r.choice([24, 48]), 2
        for key in ("eos_token", "pad_token", "padding_free"):
            s.pop(key, None)
        if tokenizer["real"] == "olmo-50k":  # offsets without their spaces: a known fault of TRL's masks
            s.pop("assistant_only_loss", None)
    return d


OTHER_FORMS = tuple(sorted(FORMS.keys() - {"text", "prompt", "messages"}))
WITH_TOOLS = ("tools", "variables", "answered by tools")


def _steps(r: random.Random, d: Draw) -> None:
    s, way = d.settings, r.random()
    if way < 0.5:
        s["max_steps"] = r.randint(1, 8)
    else:
        s["num_train_epochs"] = r.choice([0.3, 0.5, 1, 1, 1, 1.5, 2, 2.1])
    for key, values, share in (
        ("dataloader_drop_last", [True], 0.2),
        ("shuffle_dataset", [True], 0.2),
        ("seed", range(100), 0.3),
        ("data_seed", range(100), 0.2),
    ):
        if r.random() < share:
            s[key] = r.choice(values)  # type: ignore[arg-type]


def _content(r: random.Random, d: Draw) -> None:
    s = d.settings
    if d.form in ("messages", "answered", *WITH_TOOLS) and r.random() < 0.5:
        s["assistant_only_loss"] = True
    if d.form in ("prompt", "answered") and r.random() < 0.5:
        s["completion_only_loss"] = r.choice([True, False, None])
    if (d.form == "masked" and r.random() < 0.7) or (d.form in ("messages", "text") and r.random() < 0.05):
        s["completion_only_loss"] = True
    s["max_length"] = r.choice([None, 1024, 64, 40, 24, 12, 5])
    alone = d.kind not in WITHOUT_BOUNDARIES
    if s["max_length"] and r.random() < 0.2:
        s["truncation_mode"] = "keep_end"
    elif s["max_length"] and r.random() < 0.25:
        s["packing"] = True
        s["packing_strategy"] = r.choice(["bfd", "bfd_split", "wrapped"] if alone else ["wrapped"])
        if r.random() < 0.3:
            s["eval_packing"] = r.random() < 0.5
    elif s["max_length"] is None and alone and r.random() < 0.7:
        s["padding_free"] = True
        d.ours["packed_execution"] = "auto"
    if r.random() < 0.2:
        s["loss_type"] = "dft"
    elif r.random() < 0.2:
        s["label_smoothing_factor"] = r.choice([0.05, 0.2])
    if r.random() < 0.15:
        s["eos_token"] = r.choice(["<eos>", "<|user|>", "<|system|>"])
    if r.random() < 0.15:
        s["pad_token"] = r.choice(["<pad>", "<eos>", "<|system|>"])
    if r.random() < 0.15 and d.form not in WITH_TOOLS:
        d.template = r.choice(list(TEMPLATES.values()))
    if d.form == "text" and r.random() < 0.3:
        s["dataset_text_field"] = "body"
        for row in d.rows:
            row["body"] = row.pop("text")


SCHEDULES: list[tuple[str | None, dict[str, Any] | None]] = [
    (None, None),
    (None, None),
    ("constant", None),
    ("cosine", None),
    ("cosine", {"num_cycles": 1.5}),
    ("constant_with_warmup", None),
    ("cosine_with_restarts", {"num_cycles": 2}),
    ("polynomial", {"power": 2.0, "lr_end": 1e-6}),
    ("inverse_sqrt", {"timescale": 3}),
    ("inverse_sqrt", None),
    ("warmup_stable_decay", {"num_decay_steps": 2}),
    ("warmup_stable_decay", {"num_decay_steps": 2, "min_lr_ratio": 0.1, "decay_type": "cosine"}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", {"min_lr": 1e-5}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}),
]
OPTIM_ARGS = {
    "sgd": ["momentum=0.9", "momentum=0.9,nesterov=true", "momentum=0.8, dampening=0.1"],
    "rmsprop": ["momentum=0.5", "alpha=0.9,eps=1e-6", "centered=True"],
    "adagrad": ["lr_decay=0.1", "eps=1e-8"],
}


def _optimizer(r: random.Random, d: Draw) -> None:
    s = d.settings
    s["max_grad_norm"] = r.choice([1.0, 1.0, 0.0, 0.1, 5])
    s["weight_decay"] = r.choice([0.0, 0.0, 0.1, 0.01])
    name = r.choice([None, None, "adamw_torch_fused", "adamw_torch", "sgd", "adagrad", "rmsprop", "adafactor"])
    if name:
        s["optim"] = name
        s["learning_rate"] *= {"sgd": 100, "rmsprop": 0.2}.get(name, 1)
        if name in OPTIM_ARGS and r.random() < 0.4:
            s["optim_args"] = r.choice(OPTIM_ARGS[name])
    if r.random() < 0.3:
        s["adam_beta1"], s["adam_beta2"] = r.choice([0.8, 0.0, 0.95]), r.choice([0.95, 0.99])
    if r.random() < 0.2:
        s["adam_epsilon"] = r.choice([1e-6, 1e-3])
    kind, more = r.choice(SCHEDULES)
    if kind:
        s["lr_scheduler_type"] = kind
    if more:
        s["lr_scheduler_kwargs"] = more
    if r.random() < 0.35:
        s["warmup_steps"] = r.choice([1, 2, 3, 0.1, 0.3, 0.5])


TARGETS: list[Any] = [
    ["q_proj", "v_proj"],
    ["q_proj", "k_proj", "o_proj"],
    ["layers.0.self_attn.q_proj", "v_proj"],
    r".*\.1\..*(q|v)_proj",
]


def _adapter(r: random.Random, d: Draw) -> None:
    s = d.settings
    if r.random() < 0.5:
        return
    d.same_adapter = r.random() < 0.6
    some = d.kind in BY_PROJECTION and r.random() < 0.6
    targets: Any = "all-linear"
    if some:
        targets = r.choice(TARGETS)
    if some and r.random() < 0.3:
        d.peft = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
        way = r.choice(["rank_pattern", "alpha_pattern", "bias", "layers_to_transform", "init_lora_weights"])
        d.peft[way] = {
            "rank_pattern": {"v_proj": 2},
            "alpha_pattern": {"layers.1.self_attn.q_proj": 3},
            "bias": r.choice(["all", "lora_only"]),
            "layers_to_transform": [1],
            "init_lora_weights": r.choice(["gaussian", "pissa", "olora"]),
        }[way]
        d.same_adapter = d.same_adapter and way != "init_lora_weights"
        return
    s["use_peft"], s["lora_dropout"] = True, 0.0
    s["lora_r"], s["lora_alpha"] = r.choice([1, 2, 4, 5]), r.choice([1, 4, 16])
    if d.kind not in ("gpt2", "phi3") or r.random() < 0.5:
        s["lora_target_modules"] = targets
    if d.kind in ("mixtral", "qwen3_moe") and r.random() < 0.4:
        s["lora_target_parameters"] = ["mlp.experts.down_proj"]
        s["lora_target_modules"] = ["q_proj", "v_proj"]
    if r.random() < 0.2:
        s["use_rslora"] = True
    if r.random() < 0.2 and d.kind not in EXPERTS:
        s["use_dora"] = True
    if r.random() < 0.25 and d.kind in BY_PROJECTION:
        s["lora_modules_to_save"] = r.choice([["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"], ["norm"]])


def _evaluation(r: random.Random, d: Draw) -> None:
    s = d.settings
    if r.random() < 0.6:
        return
    held = r.choice([1, 4, 7])
    d.held_out, d.rows = d.rows[:held], d.rows[held:]  # both splits with the same columns, which `datasets` asks for
    s.pop("dataloader_drop_last", None)  # TRL drops the last batch of an evaluation, too
    s["per_device_eval_batch_size"] = 1000  # one batch: TRL takes the mean of batches' means
    s["eval_strategy"] = r.choice(["steps", "epoch"])
    if s["eval_strategy"] == "steps":
        s["eval_steps"] = r.choice([1, 2, 0.3])
    if r.random() < 0.2:
        s["eval_on_start"] = True
    if r.random() < 0.2:
        s["eval_delay"] = r.choice([1, 2])
    if r.random() < 0.25:
        s["save_strategy"] = s["eval_strategy"]
        if "eval_steps" in s:
            s["save_steps"] = s["eval_steps"]
        s["load_best_model_at_end"] = True
        if r.random() < 0.4:
            s["metric_for_best_model"] = r.choice(["eval_mean_token_accuracy", "loss"])
            if r.random() < 0.5:
                s["greater_is_better"] = r.random() < 0.5
    if "metric_for_best_model" not in s and r.random() < 0.1:
        s["lr_scheduler_type"] = "reduce_lr_on_plateau"
        s["lr_scheduler_kwargs"] = {"patience": 0, "factor": 0.5}


def _rest(r: random.Random, d: Draw) -> None:
    s = d.settings
    for key, values, share in (
        ("logging_steps", [2, 3, 0.4], 0.15),
        ("logging_first_step", [True], 0.1),
        ("logging_strategy", ["epoch"], 0.05),
        ("dtype", ["float32", "auto"], 0.1),
        ("attn_implementation", ["eager", "sdpa"], 0.1),
        ("model_init_kwargs", [{"dtype": "float32"}, {"use_cache": False}], 0.1),
        ("gradient_checkpointing_kwargs", [{"use_reentrant": False}], 0.05),
        ("remove_unused_columns", [True], 0.1),
        ("average_tokens_across_devices", [True], 0.1),
        ("pad_to_multiple_of", [8], 0.1),
    ):
        if r.random() < share:
            s[key] = r.choice(values)
    if s.get("dtype") == "auto":
        s.pop("model_init_kwargs", None)
    if s["save_strategy"] == "no" and r.random() < 0.1:
        s["save_strategy"] = r.choice(["steps", "epoch"])
        if s["save_strategy"] == "steps":
            s["save_steps"] = r.choice([1, 2, 0.5])
        if r.random() < 0.5:
            s["save_total_limit"] = r.choice([1, 2])
    if d.kind in EXPERTS:
        s["router_aux_loss_coef"] = 0.0  # what it adds is refused or said
        s.pop("load_best_model_at_end", None)  # TRL keeps the last experts beside the best of all else
        s.pop("metric_for_best_model", None)
        s.pop("greater_is_better", None)
    d.mixture = not d.held_out and r.random() < 0.1
