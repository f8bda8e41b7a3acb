"""The model as it will be trained: loaded, its embedding fitted, its adapter in place, checked and described."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.adapter import add_adapter, lora_config, not_fused
from dynotune.model.describe import ModelFacts, describe_model
from dynotune.model.embedding import agree_on_special_tokens, fit_embedding
from dynotune.model.load import check_model, load_model
from dynotune.model.precision import Precision
from dynotune.model.tokenizer import TokenizerChanges

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model ready for the loop, and what is to be said about it."""

    model: "PreTrainedModel"
    facts: ModelFacts
    says: list[str]


def prepare_model(
    config: SFTConfig,
    precision: Precision,
    device: "torch.device",
    tokenizer: "PreTrainedTokenizerBase",
    changes: TokenizerChanges,
    own_model: "PreTrainedModel | None" = None,
    own_peft_config: "PeftConfig | None" = None,
) -> Prepared:
    """Make the model that `config` asks for, or take the caller's own."""
    says = [f"precision: {precision.why}"]
    if precision.behavioural:
        says.append(f"behavioural: {precision.behavioural}")
    is_peft = own_model is not None and hasattr(own_model, "peft_config")
    if is_peft and own_peft_config is not None:
        raise ConfigError("`model` is already a PeftModel: give either that or `peft_config`, not both.")
    if is_peft and config.use_peft:
        raise ConfigError(
            "`model` is already a PeftModel and `use_peft: true` asks for another adapter: take one of the two."
        )
    if own_model is None:
        model = load_model(config, precision, device)
    else:
        model = own_model.to(device)  # type: ignore[arg-type]  # transformers' stub of `to` names no device
        model.config.use_cache = False
    wants_adapter = own_peft_config is not None or config.use_peft
    if not is_peft:
        note = fit_embedding(model, tokenizer, changes.new_ids)
        if note:
            says.append(note)
    agree_on_special_tokens(model, tokenizer, changes.new_eos)
    if wants_adapter:
        tied = bool(getattr(model.config.get_text_config(), "tie_word_embeddings", False))
        peft_config = own_peft_config or lora_config(config, changes.new_ids, tied)
        model = add_adapter(model, peft_config)  # type: ignore[assignment]
        variant = not_fused(peft_config)
        if variant:
            says.append(f"{variant}: runs through PEFT's own forward (not fused)")
    if hasattr(model, "peft_config") and own_model is None:
        _check_adapter_precision(model)
    if config.gradient_checkpointing:
        _checkpoint_activations(model, config)
        says.append("gradient checkpointing: on")
    if config.neftune_noise_alpha:
        _add_neftune(model, config.neftune_noise_alpha)
        says.append(f"behavioural: NEFTune noise, alpha {config.neftune_noise_alpha}")
    says += _router_loss(model)
    facts = describe_model(model, device)
    if not facts.trainable:
        raise ModelError("No parameter of the model is trainable. Unfreeze some, or set `use_peft: true`.")
    if own_model is None and not wants_adapter:
        check_model(model, config, precision, device)
    return Prepared(model, facts, [*facts.lines(), *says])


def _router_loss(model: "PreTrainedModel") -> list[str]:
    """TRL adds a mixture-of-experts model's router loss, whose value depends on how a step is cut into batches."""
    coefficient = getattr(model.config.get_text_config(), "router_aux_loss_coef", None)
    if not coefficient:
        return []
    return [
        f"behavioural: the router's auxiliary loss of this mixture of experts (coefficient {coefficient}) is not added to"
        " the objective; TRL adds it"
    ]


def _check_adapter_precision(model: "PreTrainedModel") -> None:
    """Adapters are float32: updates of a small learning rate vanish in bfloat16."""
    import torch

    wrong = [n for n, p in model.named_parameters() if p.requires_grad and p.dtype != torch.float32]
    if wrong:
        raise ModelError(f"Trainable weights are not float32 ({wrong[0]} and {len(wrong) - 1} more).")


def _checkpoint_activations(model: "PreTrainedModel", config: SFTConfig) -> None:
    kwargs = {"use_reentrant": False, **config.gradient_checkpointing_kwargs}
    if not getattr(model, "supports_gradient_checkpointing", True):
        raise ConfigError(f"`gradient_checkpointing: true`: {type(model).__name__} does not support it. Take it out.")
    try:
        # transformers 5.2x renamed it; the old name still works there and warns.
        if hasattr(model, "activation_checkpointing_enable"):
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=kwargs)
        else:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"`gradient_checkpointing_kwargs: {config.gradient_checkpointing_kwargs}`: {error}"
        ) from error
    if hasattr(model, "peft_config"):
        # The frozen embedding's output carries no gradient, and a checkpointed layer needs an input that does.
        model.enable_input_require_grads()


def _add_neftune(model: "PreTrainedModel", alpha: float) -> None:
    """NEFTune: uniform noise of magnitude alpha / sqrt(T * D) on the embeddings while training."""
    import torch
    from torch import Tensor

    def add_noise(module: torch.nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not module.training:
            return output
        magnitude = alpha / (output.shape[-2] * output.shape[-1]) ** 0.5
        return output + torch.empty_like(output).uniform_(-magnitude, magnitude)

    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Module)
    embedding.register_forward_hook(add_noise)
