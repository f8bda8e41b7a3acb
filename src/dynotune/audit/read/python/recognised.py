"""Which classes and functions of libraries make a training job, and what their arguments are called in TRL's words."""

import ast
from collections.abc import Mapping

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.read.python.declared import library_base
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Site
from dynotune.audit.schema import Schemas

Whose = tuple[Trainer, Method | None]

_OTHER = (
    "GRPO",
    "KTO",
    "RLOO",
    "Reward",
    "ORPO",
    "CPO",
    "PPO",
    "OnlineDPO",
    "Distillation",
    "GKD",
    "PRM",
    "XPO",
    "NashMD",
)
CONFIGS: Mapping[str, Whose] = {
    "TrainingArguments": (Trainer.TRANSFORMERS, None),
    "Seq2SeqTrainingArguments": (Trainer.TRANSFORMERS, None),
    "SFTConfig": (Trainer.TRL, Method.SFT),
    "DPOConfig": (Trainer.TRL, Method.DPO),
    "UnslothTrainingArguments": (Trainer.UNSLOTH, Method.SFT),
    **{f"{name}Config": (Trainer.TRL, Method.OTHER) for name in _OTHER},
}
TRAINERS: Mapping[str, Whose] = {
    "Trainer": (Trainer.TRANSFORMERS, None),
    "Seq2SeqTrainer": (Trainer.TRANSFORMERS, None),
    "SFTTrainer": (Trainer.TRL, Method.SFT),
    "DPOTrainer": (Trainer.TRL, Method.DPO),
    "UnslothTrainer": (Trainer.UNSLOTH, Method.SFT),
    **{f"{name}Trainer": (Trainer.TRL, Method.OTHER) for name in _OTHER},
}
LIBRARIES = ("transformers", "trl", "unsloth", "dynotune", "optimum", "peft")

LORA: Mapping[str, str] = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "target_parameters": "lora_target_parameters",
    "task_type": "lora_task_type",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
    "init_lora_weights": "init_lora_weights",
    "bias": "lora_bias",
}
LOADING: Mapping[str, str] = {
    "pretrained_model_name_or_path": "model_name_or_path",
    "model_name": "model_name_or_path",
    "0": "model_name_or_path",
    "revision": "model_revision",
    "torch_dtype": "dtype",
    "dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "device_map": "device_map",
    "trust_remote_code": "trust_remote_code",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "use_cache": "use_cache",
    "full_finetuning": "full_finetuning",
}
QUANTIZED: Mapping[str, str] = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
    "bnb_4bit_compute_dtype": "bnb_4bit_compute_dtype",
}
_ONCE = (
    "max_seq_length packing dataset_text_field dataset_num_proc neftune_noise_alpha beta max_length max_prompt_length"
    " label_smoothing loss_type precompute_ref_log_probs"
)
ONCE_OF_TRAINERS = frozenset(_ONCE.split())
"""Settings that older releases of TRL took in the trainer's call."""

_FIELDS = (
    "model_name_or_path model_revision dtype torch_dtype attn_implementation trust_remote_code use_peft lora_r lora_alpha"
    " lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save lora_task_type use_rslora use_dora"
    " load_in_8bit load_in_4bit bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage dataset_name"
    " dataset_config dataset_train_split dataset_test_split dataset_streaming ignore_bias_buffers datasets streaming"
    " test_split_size"
)
FROM_A_COMMAND_LINE = frozenset(_FIELDS.split())
"""Fields of TRL's ModelConfig and ScriptArguments: their defaults hold only for scripts that parse those classes."""


def takes(schemas: Schemas, dotted: str, name: str) -> bool | None:
    """Whether a library's configuration class takes a key, in the version that the project asks for; None: nothing
    is known of the class."""
    who = whose(dotted, CONFIGS)
    if who is None:
        lora = schemas.lora() if dotted.rpartition(".")[2] == "LoraConfig" and dotted.startswith("peft") else {}
        return name in lora if lora else None
    keys = schemas.keys(*who, dotted.rpartition(".")[2])
    if not keys.known:
        return None
    moved = keys.moved.get(name)
    if moved is not None and name not in keys.keys:
        return keys.before(moved)
    return name in keys.keys and (name not in FROM_A_COMMAND_LINE or who[0] is Trainer.TRANSFORMERS)


def class_name(evaluator: Evaluator, site: Site) -> str:
    """Of the library's class that a call makes an object of, directly or by a subclass in the project; else empty."""
    dotted = evaluator.module.dotted(site.node.func)
    if dotted:
        found = evaluator.class_elsewhere(dotted)
        return library_base(*found) if found is not None else dotted
    if isinstance(site.node.func, ast.Name):
        for binding in evaluator.module.bound(site.node.func.id, site.scope):
            if binding.kind == "class" and binding.node is not None:
                return library_base(evaluator, evaluator.module.scopes[binding.node])
    return ""


def taken_as(evaluator: Evaluator, site: Site) -> str:
    """The library's class whose arguments a call takes: itself, or of a subclass in the project that has no `__init__` of
    its own; else empty."""
    dotted = evaluator.module.dotted(site.node.func)
    scope = None
    if dotted:
        found = evaluator.class_elsewhere(dotted)
        if found is None:
            return dotted
        scope = found[1]
    elif isinstance(site.node.func, ast.Name):
        bound = evaluator.module.bound(site.node.func.id, site.scope)
        nodes = [one.node for one in bound if one.kind == "class" and one.node is not None]
        scope = evaluator.module.scopes[nodes[-1]] if nodes else None
    if scope is None or "__init__" in scope.bindings:
        return ""
    return class_name(evaluator, site)


def whose(name: str, table: Mapping[str, Whose], *, unsloth: bool = False) -> Whose | None:
    """Of a qualified class name. unsloth: the script patches these classes by importing it."""
    package, _, _ = name.partition(".")
    found = table.get(name.rpartition(".")[2]) if package in LIBRARIES else None
    if found is None:
        return None
    if package == "dynotune":
        return Trainer.DYNOTUNE, found[1]
    if unsloth or package == "unsloth":
        return Trainer.UNSLOTH, found[1] or Method.SFT
    return found
