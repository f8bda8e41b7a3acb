"""LoRA: PEFT injects and saves it, this file decides where and checks that it landed."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from dynotune.config.keys.adapter import AdapterConfig
from dynotune.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel


def lora_config(config: AdapterConfig, new_token_ids: list[int], tied: bool) -> "PeftConfig":
    """PEFT's configuration of what was asked. New tokens train their own embedding rows, and an untied head."""
    from peft import LoraConfig

    more: dict[str, Any] = {}
    save = list(config.lora_modules_to_save or [])
    if config.lora_target_parameters:
        more["target_parameters"] = config.lora_target_parameters
    if new_token_ids:
        more["trainable_token_indices"] = {"embed_tokens": new_token_ids}
        if not tied and "lm_head" not in save:
            save.append("lm_head")
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
    """Inject the adapter. A target that matches nothing, or only some of the names, is an error."""
    from peft import get_peft_model

    _refuse_unmatched_names(model, peft_config)
    try:
        wrapped = get_peft_model(model, peft_config)
    except (ValueError, KeyError) as error:
        leaves = Counter(
            name.rsplit(".", 1)[-1] for name, module in model.named_modules() if not list(module.children())
        )
        raise ModelError(
            f"The adapter cannot be placed: {error}\nThis model's linear and other leaf modules are named"
            f" {', '.join(sorted(leaves))}. Set `lora_target_modules` to some of them, or to `all-linear`."
        ) from error
    if not any(p.requires_grad for p in wrapped.parameters()):
        raise ModelError("The adapter has nothing to train. Check `lora_target_modules`.")
    return wrapped


def _refuse_unmatched_names(model: "PreTrainedModel", peft_config: "PeftConfig") -> None:
    """PEFT is content when one name of the list matches; a misspelt second one would silently train less."""
    for key, setting in (("target_modules", "lora_target_modules"), ("modules_to_save", "lora_modules_to_save")):
        names = getattr(peft_config, key, None)
        if not names or isinstance(names, str):
            continue
        modules = [name for name, _ in model.named_modules()]
        missing = [n for n in names if not any(m == n or m.endswith(f".{n}") for m in modules)]
        if missing:
            leaves = sorted({m.rsplit(".", 1)[-1] for m in modules if m})
            raise ConfigError(
                f"`{setting}`: {', '.join(sorted(missing))} matches no module of this model. Its modules are named"
                f" {', '.join(leaf for leaf in leaves if not leaf.isdigit())}."
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
    kind = str(getattr(peft_config, "peft_type", "LORA")).rsplit(".", 1)[-1]
    if kind != "LORA":
        variants.append(kind)
    return ", ".join(variants) or None
