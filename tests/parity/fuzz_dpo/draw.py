"""Preference runs drawn at random: a tiny model, a tokenizer, rows, and a configuration that TRL takes."""

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

from tests.data.made_tokenizer import CHATML, GENERATION
from tests.model.attention.architectures import ARCHITECTURES
from tests.parity.fuzz_dpo.rows import FORMS, Row, make_remarkable, row_of
from tests.tiny import CHAT, tiny_model

KINDS: dict[str, dict[str, Any]] = {
    **ARCHITECTURES,
    "gemma": {},
    "phi": {},
    "olmo": {},
    "stablelm": {},
    "starcoder2": {},
    "cohere": {},
    "glm4": {},
    "gpt_neox": {},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mixtral": {"num_local_experts": 4},
    "granitemoe": {"num_local_experts": 4},
}
"""The architectures of packed execution, and some that run one document at a time."""

MIXTURES = frozenset({"qwen3_moe", "mixtral", "granitemoe"})

THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Strips what it is given, and its generation prompt holds more than the conversation does, like Qwen3's."""

WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] or '' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"chat": CHAT, "chatml": CHATML, "generation": GENERATION, "thinking": THINKING, "tools": WITH_TOOLS}

OF_THE_MARGIN = ("sigmoid", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft", "sigmoid_norm")
LOSSES = (*OF_THE_MARGIN, "nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down")

SCHEDULES: dict[str, dict[str, Any]] = {
    "linear": {},
    "cosine": {},
    "constant": {},
    "constant_with_warmup": {},
    "inverse_sqrt": {},
    "polynomial": {"power": 2.0},
    "cosine_with_restarts": {"num_cycles": 2},
    "cosine_with_min_lr": {"min_lr": 1e-5},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2},
    "warmup_stable_decay": {"num_decay_steps": 2},
}
NOW_AND_THEN: tuple[tuple[str, Any, float], ...] = (
    ("gradient_checkpointing", True, 0.2),
    ("padding_free", True, 0.05),
    ("pad_to_multiple_of", 8, 0.1),
    ("remove_unused_columns", False, 0.1),
    ("seed", 7, 0.2),
    ("average_tokens_across_devices", False, 0.05),
    ("dataset_num_proc", 1, 0.05),
    ("include_num_input_tokens_seen", True, 0.05),
    ("dataloader_drop_last", True, 0.2),
    ("ref_model_sync_steps", 2, 0.05),
    ("pad_token", "</s>", 0.1),
)


@dataclass
class Case:
    """One run, as both sides get it."""

    number: int
    kind: str
    changes: dict[str, Any]
    tokenizer: str
    template: str
    form: str
    rows: list[Row]
    held_out: list[Row] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=dict)
    """Of TRL's DPOConfig."""

    lora: dict[str, Any] | None = None
    """Of PEFT's LoraConfig; all of it is in TRL's ModelConfig, too, where the run is read from a file."""

    from_file: bool = False
    """A YAML file, a folder with the model and a folder with data, as `trl dpo --config` takes them; else objects."""

    trained_adapter: bool = False
    """The model has an adapter already, which is trained on and is its own reference."""

    said: list[str] = field(default_factory=list)
    """Words by which ours says, or refuses, what was drawn on purpose and need not be as in TRL."""

    execution: str = "auto"
    """Ours alone: packed or not."""

    def __str__(self) -> str:
        told = {key: value for key, value in vars(self).items() if key not in ("rows", "held_out", "number")}
        told = {key: value for key, value in told.items() if value not in ([], None, False, {})}
        return f"case {self.number}: {len(self.rows)} rows, {len(self.held_out)} held out, {told}"


def draw(number: int) -> Case:
    """Case `number`: always the same."""
    chance = random.Random(f"preferences {number}")
    kind = chance.choice(sorted(KINDS))
    tokenizer = chance.choice(["plain", "plain", "bos", "eos", "bos-eos", "prefix-space"])
    form = chance.choice(FORMS)
    template = {"tools": "tools", "variables": "thinking"}.get(form) or chance.choice(sorted(TEMPLATES))
    rows = [row_of(chance, form) for _ in range(chance.choice([6, 8, 9, 12, 16]))]
    case = Case(number, kind, dict(KINDS[kind]), tokenizer, template, form, rows)
    if chance.random() < 0.3 and kind not in ("gpt2", "gpt_neox", "opt", "bloom"):
        case.changes["tie_word_embeddings"] = True
    case.execution = chance.choice(["auto", "auto", "off", "on" if kind in ARCHITECTURES else "auto"])
    case.said, keys = make_remarkable(case.rows, chance, form)
    case.keys |= keys
    for step in (_loss, _steps, _optimizer, _evaluation, _adapter, _reference):
        step(case, chance)
    if kind in MIXTURES:
        if chance.random() < 0.3 and kind != "granitemoe":  # TRL's own loss of it fails there
            case.said.append("router's auxiliary loss")
        else:
            case.keys["router_aux_loss_coef"] = 0.0
    return case


def _loss(case: Case, chance: random.Random) -> None:
    keys = case.keys
    losses = [chance.choice(LOSSES)]
    if chance.random() < 0.25:
        losses = chance.sample(LOSSES, chance.choice([2, 2, 3]))
        if chance.random() < 0.7:
            keys["loss_weights"] = [chance.choice([1.0, 0.5, 0.2, 2.0, 0.0]) for _ in losses]
    keys["loss_type"] = losses if len(losses) > 1 or chance.random() < 0.5 else losses[0]
    if chance.random() < 0.5:
        keys["beta"] = chance.choice([0.01, 0.05, 0.3, 1.0, 3.0])
    if "exo_pair" in losses or chance.random() < 0.2:
        keys["label_smoothing"] = chance.choice([0.001, 0.1, 0.3])
    if chance.random() < 0.2:
        keys["ld_alpha"] = chance.choice([0.0, 0.3, 1.0])
    if chance.random() < 0.15 and not {"aot", "aot_unpaired", "sft", "hinge"} & set(losses):
        keys["use_weighting"] = True
    if chance.random() < 0.35 and set(losses) <= set(OF_THE_MARGIN):
        divergence = chance.choice(["forward_kl", "js_divergence", "alpha_divergence", "alpha_divergence"])
        keys["f_divergence_type"] = divergence
        if divergence == "alpha_divergence" and chance.random() < 0.7:
            keys["f_alpha_divergence_coef"] = chance.choice([0.2, 0.9, 1.0, 1.5, 2.0])
    if "discopop" in losses and chance.random() < 0.5:
        keys["discopop_tau"] = chance.choice([0.02, 0.5])


def _steps(case: Case, chance: random.Random) -> None:
    keys = case.keys
    keys["per_device_train_batch_size"] = chance.choice([1, 2, 2, 3, 4])
    keys["gradient_accumulation_steps"] = chance.choice([1, 1, 1, 2, 3])
    if chance.random() < 0.3:
        keys["num_train_epochs"] = chance.choice([1, 0.6, 1.4])
    else:
        keys["max_steps"] = chance.choice([3, 4, 5, 6])
    if chance.random() < 0.3:
        keys["logging_steps"] = chance.choice([2, 3, 0.4])
        keys["logging_first_step"] = chance.random() < 0.5
    if "max_length" not in keys and chance.random() < 0.3:
        keys["max_length"] = chance.choice([40, 60, 100, None])
        if chance.random() < 0.4:
            keys["truncation_mode"] = "keep_end"
    for key, value, share in NOW_AND_THEN:
        if chance.random() < share:
            keys[key] = value


def _optimizer(case: Case, chance: random.Random) -> None:
    keys = case.keys
    keys["learning_rate"] = chance.choice([1e-3, 1e-3, 3e-4, 1e-2])
    keys["lr_scheduler_type"] = chance.choice(["linear", *SCHEDULES])
    if SCHEDULES[keys["lr_scheduler_type"]]:
        keys["lr_scheduler_kwargs"] = SCHEDULES[keys["lr_scheduler_type"]]
    if chance.random() < 0.4:
        keys["warmup_steps"] = chance.choice([1, 2, 0.3])
    optimizer = chance.choice(["adamw_torch_fused", None, "adamw_torch", "sgd", "rmsprop", "adagrad", "adafactor"])
    if optimizer is not None:
        keys["optim"] = optimizer
    if optimizer == "sgd":
        keys["learning_rate"] = chance.choice([0.05, 0.2])
        if chance.random() < 0.5:
            keys["optim_args"] = "momentum=0.9"
    elif optimizer in (None, "adamw_torch", "adamw_torch_fused") and chance.random() < 0.4:
        keys |= {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": chance.choice([1e-8, 1e-6])}
    if chance.random() < 0.4:
        keys["weight_decay"] = chance.choice([0.01, 0.1])
    if chance.random() < 0.4:
        keys["max_grad_norm"] = chance.choice([0.0, 0.05, 10.0])


def _evaluation(case: Case, chance: random.Random) -> None:
    if chance.random() < 0.6:
        return
    keys = case.keys
    size = keys["per_device_eval_batch_size"] = chance.choice([1, 2, 4, 8])
    case.held_out = [row_of(chance, case.form) for _ in range(size * chance.choice([1, 2]))]
    keys["eval_strategy"] = chance.choice(["steps", "epoch"])
    if keys["eval_strategy"] == "steps":
        keys["eval_steps"] = chance.choice([1, 2, 0.5])
    if chance.random() < 0.3:
        keys["eval_on_start"] = True
    if chance.random() < 0.2:
        keys["eval_delay"] = 2


def _adapter(case: Case, chance: random.Random) -> None:
    case.from_file = chance.random() < 0.3
    if chance.random() < 0.45:
        return
    names = chance.choice(["all-linear", _linears(case.kind), _linears(case.kind)[:1], None])
    if not names and case.kind not in TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING:
        names = "all-linear"
    if case.from_file and names is not None and len(names) == 1:
        names = "all-linear"  # TRL makes a regular expression of it that matches nothing: documented
    lora: dict[str, Any] = {"r": chance.choice([1, 4, 8]), "lora_alpha": chance.choice([4, 8, 32])}
    if case.kind in ("mixtral", "granitemoe") and names is None:
        names = _linears(case.kind)  # PEFT's own choice has bare parameters, which take neither dropout nor DoRA
    if names is not None:
        lora["target_modules"] = names
    if chance.random() < 0.3:
        lora["lora_dropout"] = chance.choice([0.0, 0.05])
    for key, share in (("use_rslora", 0.2), ("use_dora", 0.15)):
        if chance.random() < share:
            lora[key] = True
    if not case.changes.get("tie_word_embeddings") and chance.random() < 0.15:
        lora["modules_to_save"] = [chance.choice(["norm", "lm_head", "embed_tokens"])]
    if not case.from_file:
        which = chance.random()
        if which < 0.15 and not lora.get("use_dora"):
            lora["init_lora_weights"] = chance.choice(["pissa", "olora", "gaussian", False])
            case.said += ["TRL measures against these weights alone", "does not begin at zero"]
        elif which < 0.3:
            lora["bias"] = chance.choice(["all", "lora_only"])
            case.said.append("TRL's reference moves with them")
        elif which < 0.4:
            lora["rank_pattern"] = {_linears(case.kind)[0]: 2}
        elif which < 0.6:
            case.trained_adapter = True
            lora.setdefault("target_modules", _linears(case.kind))
    case.lora = lora


@cache
def _linears(kind: str) -> list[str]:
    """Two names of linear layers of this architecture."""
    names = {
        name.rsplit(".", 1)[-1]
        for name, module in tiny_model(kind, **KINDS[kind]).named_modules()
        if (isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D") and name.count(".") > 2
    }
    return sorted(names - {"gate", "router", "layer"})[-2:]


def _reference(case: Case, chance: random.Random) -> None:
    keys = case.keys
    if chance.random() < 0.3:
        keys["precompute_ref_log_probs"] = chance.choice([True, False])
        if keys["precompute_ref_log_probs"] and chance.random() < 0.5:
            keys["precompute_ref_batch_size"] = chance.choice([1, 3])
    elif chance.random() < 0.05 and case.lora is None:
        keys["sync_ref_model"] = True
        case.said.append("sync_ref_model")
    # The lora_dropout that TRL takes where none is given is above 0, and what is dropped is drawn by each side for itself.
    still = case.lora is None or case.lora.get("lora_dropout", 0.05 if case.from_file else 0.0) == 0
    if chance.random() < 0.1 and still and case.kind not in ("phi", "bloom"):
        keys["disable_dropout"] = False
