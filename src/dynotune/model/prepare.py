"""The model as it will be trained: loaded, its embedding fitted, its adapter in place, checked and described."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.adapter import add_adapter, lora_config, not_fused, refuse_mixed_products, say_where
from dynotune.model.describe import ModelFacts, describe_model
from dynotune.model.embedding import agree_on_special_tokens, fit_embedding
from dynotune.model.flash_packages import loadable
from dynotune.model.load import check_model, load_model
from dynotune.model.precision import Precision, state_precision
from dynotune.model.tokenizer import TokenizerChanges

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model ready for the loop, and what is to be said about it."""

    model: "PreTrainedModel"
    facts: ModelFacts
    says: list[str]
    undo: ExitStack
    as_in_files: bool
    """Whether its weights are those of the files that `model_name_or_path` names, but for a new adapter."""

    def restore(self) -> None:
        """Take back what holds for the run only: noise on the embeddings, checkpointing, the cache that was off."""
        self.undo.close()


def prepare_model(
    config: WholeConfig,
    precision: Precision,
    device: "torch.device",
    tokenizer: "PreTrainedTokenizerBase",
    changes: TokenizerChanges,
    own_model: "PreTrainedModel | None" = None,
    own_peft_config: "PeftConfig | None" = None,
) -> Prepared:
    """Make the model that `config` asks for, or take the caller's own. An error leaves the caller's as `restore` would."""
    with ExitStack() as undo:
        model, says, as_in_files = _prepare(
            config, precision, device, tokenizer, changes, own_model, own_peft_config, undo
        )
        facts = describe_model(model, device)
        if not facts.trainable:
            is_peft = own_model is not None and hasattr(own_model, "peft_config")
            remedy = "load it with `is_trainable=True`" if is_peft else "unfreeze some, or set `use_peft: true`"
            raise ModelError(f"No parameter of the model is trainable: {remedy}.")
        says = [*state_precision(model, precision, device), *facts.lines(), *says]
        return Prepared(model, facts, says, undo.pop_all(), as_in_files)
    raise AssertionError("an ExitStack lets errors through")


def _prepare(
    config: WholeConfig,
    precision: Precision,
    device: "torch.device",
    tokenizer: "PreTrainedTokenizerBase",
    changes: TokenizerChanges,
    own_model: "PreTrainedModel | None",
    own_peft_config: "PeftConfig | None",
    undo: ExitStack,
) -> "tuple[PreTrainedModel, list[str], bool]":
    says: list[str] = []
    as_in_files = own_model is None and not config.random_weights
    is_peft = own_model is not None and hasattr(own_model, "peft_config")
    if is_peft:
        _check_own_adapter(own_model, config.use_peft, own_peft_config)
    if own_model is None:
        config, says = loadable(config)
    model = load_model(config, precision, device) if own_model is None else _to(own_model, device)
    if own_model is None and config.random_weights:
        says.append(f"weights: random, drawn with seed {config.seed}; none were loaded")
    # No step needs a cache, and without `return_dict` transformers' own models fail on the outputs of their parts.
    for key, value in (("use_cache", False), ("return_dict", True)):
        undo.callback(setattr, model.config, key, getattr(model.config, key, True))
        setattr(model.config, key, value)
    wants_adapter = own_peft_config is not None or config.use_peft
    if not is_peft:
        note = fit_embedding(model, tokenizer, changes.new_ids)
        if note:
            says.append(note)
            as_in_files = False
    agree_on_special_tokens(model, tokenizer, changes.new_eos)
    if wants_adapter:
        peft_config = own_peft_config or lora_config(config, model, changes.new_ids)
        model = add_adapter(model, peft_config)  # type: ignore[assignment]
        refuse_mixed_products(model, precision.compute_bf16)
        variant = not_fused(peft_config)
        if variant:
            says.append(f"{variant}: runs through PEFT's own forward (not fused)")
    if hasattr(model, "peft_config"):
        says += say_where(cast("PeftModel", model))
    if config.neftune_noise_alpha:
        undo.callback(_add_neftune(model, config.neftune_noise_alpha))
        says.append(f"behavioural: NEFTune noise, alpha {config.neftune_noise_alpha}")
    says += _router_loss(model)
    if own_model is None and not wants_adapter:
        check_model(model, config, precision, device)
    return model, says, as_in_files


def _to(model: Any, device: "torch.device") -> "PreTrainedModel":
    return cast("PreTrainedModel", model.to(device))  # transformers' stub of `to` names no device


def _check_own_adapter(model: Any, use_peft: bool, own_peft_config: "PeftConfig | None") -> None:
    """The caller's own adapter is trained as it is, saved and resumed: refuse what would not come back."""
    from peft import PeftModel

    if own_peft_config is not None:
        raise ConfigError("`model` already has an adapter: give either that or `peft_config`, not both.")
    if use_peft:
        raise ConfigError("`model` already has an adapter and `use_peft: true` asks for another: take one of the two.")
    if not isinstance(model, PeftModel):
        raise ConfigError(
            f"`model` is a {type(model).__name__} into which an adapter was loaded. Load it as a PeftModel instead:"
            " `PeftModel.from_pretrained(base, adapter, is_trainable=True)`."
        )
    active = list(model.active_adapters)
    if active != ["default"]:
        raise ConfigError(
            f"The active adapter of `model` is {', '.join(active) or 'none'}. PEFT saves only an adapter named `default` in"
            " the place where a resume and other tools look for it: load it with `adapter_name='default'` (the default), and"
            " only this one active."
        )


def _router_loss(model: "PreTrainedModel") -> list[str]:
    """TRL adds a mixture-of-experts model's router loss, whose value depends on how a step is cut into batches."""
    coefficient = getattr(model.config.get_text_config(), "router_aux_loss_coef", None)
    if not coefficient:
        return []
    return [
        f"behavioural: the router's auxiliary loss of this mixture of experts (coefficient {coefficient}) is not added to"
        " the objective; TRL adds it, unless its `router_aux_loss_coef` is 0.0"
    ]


def _add_neftune(model: "PreTrainedModel", alpha: float) -> Callable[[], None]:
    """NEFTune: uniform noise of magnitude alpha / sqrt(T * D) on the embeddings while training. Returns its end."""
    import torch
    from torch import Tensor

    def add_noise(module: torch.nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not module.training:
            return output
        magnitude = alpha / (output.shape[-2] * output.shape[-1]) ** 0.5
        return output + torch.empty_like(output).uniform_(-magnitude, magnitude)

    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Module)
    return embedding.register_forward_hook(add_noise).remove
