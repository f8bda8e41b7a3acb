"""LoRA: PEFT injects and saves it, this file decides where, in which precision, and checks that it landed."""

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from dynotune.config.keys.adapter import AdapterConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.embedding import token_modules

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel


def lora_config(config: AdapterConfig, model: "PreTrainedModel", new_token_ids: list[int]) -> "PeftConfig":
    """PEFT's configuration of what was asked. New tokens train their own embedding rows, and an untied head."""
    from peft import LoraConfig

    more: dict[str, Any] = {}
    save = list(config.lora_modules_to_save or [])
    if config.lora_target_parameters:
        more["target_parameters"] = config.lora_target_parameters
    if new_token_ids:
        embedding, head = token_modules(model)
        # Trained in full, the embedding's new rows are trained with it.
        if not any(embedding.endswith(name) for name in save):
            more["trainable_token_indices"] = {embedding: new_token_ids}
        if head is not None and not any(head.endswith(name) for name in save):
            save.append(head)
    return LoraConfig(
        task_type=config.lora_task_type,
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=config.lora_target_modules,
        modules_to_save=save or None,
        use_rslora=config.use_rslora,
        use_dora=config.use_dora,
        init_lora_weights=config.init_lora_weights,  # type: ignore[arg-type]  # PEFT checks the name itself
        bias="none",
        **more,
    )


def add_adapter(model: "PreTrainedModel", peft_config: "PeftConfig") -> "PeftModel":
    """Inject the adapter, all of it in float32. A target that matches nothing, or only some of the names, is an error."""
    from peft import get_peft_model

    _refuse_unmatched_names(model, peft_config)
    try:
        with warnings.catch_warnings():
            # PEFT reads an attribute that transformers 5.2x is renaming; nothing that a user could mend.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            wrapped = get_peft_model(model, peft_config)
    except (ValueError, KeyError) as error:
        advice = ""
        if "target_modules" in str(error) or "target modules" in str(error).lower():
            leaves = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if not list(module.children())}
            advice = (
                f"\nThis model's linear and other leaf modules are named {', '.join(sorted(leaves))}. Set"
                " `lora_target_modules` to some of them, or to `all-linear`."
            )
        raise ModelError(f"The adapter cannot be placed: {error}{advice}") from error
    trained = [p for p in wrapped.parameters() if p.requires_grad]
    if not trained:
        raise ModelError("The adapter has nothing to train. Check `lora_target_modules`.")
    # PEFT copies modules that are trained in full, and rows of new tokens, in the base's precision. Updates of a small
    # learning rate vanish in bfloat16.
    for p in trained:
        p.data = p.data.float()
    return wrapped


def refuse_mixed_products(model: "PreTrainedModel", compute_bf16: bool) -> None:
    """A float32 module beside a lower base needs autocast: without it the first product of the two fails."""
    from peft.utils import ModulesToSaveWrapper

    if compute_bf16:
        return
    for name, module in model.named_modules():
        if not isinstance(module, ModulesToSaveWrapper):
            continue
        kept = {p.dtype for p in module.original_module.parameters()}
        trained = {p.dtype for p in module.modules_to_save.parameters()}
        if kept and trained and kept != trained:
            raise ConfigError(
                f"`{name.rsplit('.', 1)[-1]}` is trained in float32 beside a base in {_names(kept)}, and without autocast"
                " the two cannot be multiplied. Set `bf16: true`, or `dtype: float32`."
            )


def _names(dtypes: "set[torch.dtype]") -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def say_where(model: "PeftModel") -> list[str]:
    """On which modules the adapter landed, and which of them text does not reach."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper, TrainableTokensWrapper

    base: Any = model.get_base_model()
    inner = ("base_layer", "token_adapter")  # parts of a place that is counted already
    places = {
        name: module
        for name, module in base.named_modules()
        if isinstance(module, BaseTunerLayer | ModulesToSaveWrapper | TrainableTokensWrapper)
        and name.rsplit(".", 1)[-1] not in inner
    }
    if not places:
        return [f"adapter of type {peft_kind(model.active_peft_config)}: it changes no module"]
    leaves = Counter(name.rsplit(".", 1)[-1] for name in places)
    lines = [f"adapter on {len(places)} modules: {', '.join(f'{leaf} {n}' for leaf, n in sorted(leaves.items()))}"]
    if base.config.get_text_config() is not base.config:
        reached = {id(module) for module in base.get_decoder().modules()} | {id(base.get_output_embeddings())}
        outside = [name for name, module in places.items() if id(module) not in reached]
        if outside:
            towers = sorted({".".join(name.split(".")[:2]) for name in outside})
            lines.append(
                f"behavioural: {len(outside)} of these modules are outside the language model ({', '.join(towers)}): text"
                " does not train them, and they are saved as they start. Name the modules you want in"
                " `lora_target_modules` (a regular expression may hold the path)"
            )
    return lines


def peft_kind(peft_config: "PeftConfig") -> str:
    """PEFT's name of the method: LORA, LOHA, ..."""
    return str(getattr(peft_config, "peft_type", "LORA")).rsplit(".", 1)[-1]


def _refuse_unmatched_names(model: "PreTrainedModel", peft_config: "PeftConfig") -> None:
    """PEFT is content when one name of the list matches; a misspelt second one would silently train less."""
    for key, setting in (("target_modules", "lora_target_modules"), ("modules_to_save", "lora_modules_to_save")):
        names = getattr(peft_config, key, None)
        if not names or isinstance(names, str):
            continue
        from torch import nn
        from transformers.pytorch_utils import Conv1D

        modules = [name for name, _ in model.named_modules()]
        missing = [n for n in names if not any(m == n or m.endswith(f".{n}") for m in modules)]
        if missing:
            named = {m: one for m, one in model.named_modules() if m}
            some, which = "modules", ""
            if key == "target_modules":  # of all others PEFT makes no adapter
                named = {m: one for m, one in named.items() if isinstance(one, nn.Linear | Conv1D)}
                some, which = "linears", "; `all-linear` takes those of every layer"
            leaves = sorted({m.rsplit(".", 1)[-1] for m in named})
            raise ConfigError(
                f"`{setting}`: {', '.join(sorted(missing))} matches no module of this model. Its {some} are named"
                f" {', '.join(leaf for leaf in leaves if not leaf.isdigit())}{which}."
            )


def not_fused(peft_config: "PeftConfig") -> str | None:
    """The PEFT variant in use, where it is more than plain LoRA: it runs through PEFT's own forward."""
    variants = [
        name
        for name in ("use_dora", "use_qalora", "lora_bias", "alora_invocation_tokens")
        if getattr(peft_config, name, None)
    ]
    start = getattr(peft_config, "init_lora_weights", True)
    if isinstance(start, str) and start != "gaussian":
        variants.append(f"init_lora_weights={start}")
    if peft_kind(peft_config) != "LORA":
        variants.append(peft_kind(peft_config))
    return ", ".join(variants) or None
