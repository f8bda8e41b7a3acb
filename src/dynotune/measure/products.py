"""The matrix products of a live model: which weights meet a token, where, and which of them are trained.

Read off the modules, not off a parameter count: the embedding is a look-up and no product, tied heads are one parameter and
one product, of a mixture's experts only the chosen ones meet a token, PEFT keeps modules that no longer run. A parameter
that this file does not know is an error and no guess: such a model gets no MFU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dynotune.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHOSEN_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts")
"""What configurations call the number of experts that a token meets."""

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
"""What they call the number of experts that there are."""


class CannotCountError(ModelError):
    """The FLOPs of this model cannot be told from its modules; the message says which part is not understood."""


@dataclass(frozen=True, slots=True)
class Product:
    """One weight matrix that tokens are multiplied with."""

    name: str
    weights: int
    """Weights that each token meets: of experts, those of the chosen ones."""

    trained: bool
    adapter: bool
    expert: bool


@dataclass(frozen=True, slots=True)
class Products:
    """All products of a model, by where they stand."""

    layers: list[list[Product]]
    around: list[Product]
    """In the decoder, outside its layers."""

    head: list[Product]


def products_of(model: "PreTrainedModel") -> Products:
    """Walk what runs for a text. Towers for images or sound, which text does not reach, are left out.

    Raises:
        CannotCountError: a part of the model is not understood.
    """
    base = base_of(model)
    (decoder, layers), head = decoder_and_layers(base), base.get_output_embeddings()
    if head is None:
        raise CannotCountError(f"{type(base).__name__} has no output embedding")
    walk = _Walk(base.config.get_text_config())
    inside = {id(head), *(id(layer) for layer in layers)}
    return Products(
        layers=[list(walk.visit(layer, f"layers.{i}", frozenset())) for i, layer in enumerate(layers)],
        around=list(walk.visit(decoder, "", frozenset(inside))),
        head=list(walk.visit(head, "head", frozenset())),
    )


def base_of(model: "PreTrainedModel") -> Any:
    """The transformers model inside a PEFT model, or the model itself."""
    peft_config = getattr(model, "peft_config", None)
    if peft_config is None:
        return model
    if any(getattr(config, "is_prompt_learning", False) for config in peft_config.values()):
        raise CannotCountError("an adapter that puts tokens of its own before the text is not counted")
    return model.get_base_model()  # type: ignore[operator]


def experts_of(config: Any) -> int | None:
    """How many experts a mixture has, by its text configuration; None where it is none."""
    return _first_int(config, EXPERTS)


def decoder_and_layers(base: Any) -> tuple[nn.Module, nn.ModuleList]:
    """The decoder's layers, the uppermost list of modules that has as many as the configuration says, and what holds it."""
    if getattr(base.config, "is_encoder_decoder", False):
        raise CannotCountError("an encoder-decoder is not counted")
    wanted = base.config.get_text_config().num_hidden_layers
    level: list[nn.Module] = [base.get_decoder()]
    while level:
        found = [
            (m, child)
            for m in level
            for child in m.children()
            if isinstance(child, nn.ModuleList) and len(child) == wanted
        ]
        if len(found) == 1:
            return found[0]
        if found:
            break
        level = [child for m in level for child in m.children()]
    raise CannotCountError(f"the layers of {type(base).__name__} were not found")


class _Walk:
    """Yields the products below a module, each once for each time that it runs."""

    def __init__(self, config: Any) -> None:
        self.experts = experts_of(config)
        self.chosen = _first_int(config, CHOSEN_EXPERTS)

    def visit(
        self, module: nn.Module, name: str, leave_out: frozenset[int], share: Fraction | None = None
    ) -> Iterator[Product]:
        """`share`: the part of the weights that a token meets; None outside of experts, where it is all of them."""
        if (wrapped := _peft_parts(module)) is not None:
            for part, child in wrapped.items():
                part_share = share
                if part != "base_layer" and getattr(module, "parameter_name", None) and self._is_expert(module):
                    part_share = self._share(name)  # an adapter on the experts' one big parameter
                for product in self.visit(child, f"{name}.{part}", leave_out, part_share):
                    adapts = product.adapter or part.startswith("lora_")
                    yield Product(product.name, product.weights, product.trained, adapts, product.expert)
            return
        yield from self._own(module, name, share)
        for child_name, child in module.named_children():
            if id(child) not in leave_out:
                is_list = child_name == "experts" and isinstance(child, nn.ModuleList) and len(child) == self.experts
                below = self._share(name) if is_list else share
                yield from self.visit(child, f"{name}.{child_name}", leave_out, below)

    def _own(self, module: nn.Module, name: str, share: Fraction | None) -> Iterator[Product]:
        """Products of the parameters that the module itself holds."""
        if isinstance(module, nn.Embedding) or "Norm" in type(module).__name__:
            return
        if isinstance(module, nn.Linear):
            # Quantised layers keep their numbers in another shape; what is multiplied is features times features.
            yield self._product(name, module.in_features * module.out_features, module.weight, share)
            return
        for own_name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() < 2 or own_name.endswith("bias"):
                continue
            full = f"{name}.{own_name}"
            if parameter.dim() == 3 and parameter.shape[0] == self.experts:
                yield self._product(full, parameter.numel(), parameter, self._share(full))
            elif parameter.dim() == 2 and own_name == "weight" and parameter.shape[0] == self.experts:
                yield self._product(full, parameter.numel(), parameter, None)  # the router meets every token
            elif type(module).__name__ == "Conv1D" and parameter.dim() == 2:  # GPT-2's linear layer, transposed
                yield self._product(full, parameter.numel(), parameter, share)
            else:
                shape = "x".join(map(str, parameter.shape))
                raise CannotCountError(
                    f"what {type(module).__name__} does with its parameter {full.strip('.')} [{shape}] is not known"
                )

    def _product(self, name: str, weights: int, parameter: torch.Tensor, share: Fraction | None) -> Product:
        met = weights if share is None else weights * share
        assert met == int(met), (name, met)
        return Product(name.strip("."), int(met), parameter.requires_grad, False, share is not None)

    def _is_expert(self, module: nn.Module) -> bool:
        return getattr(module, "num_experts", 1) == self.experts

    def _share(self, name: str) -> Fraction:
        if not self.chosen or not self.experts:
            raise CannotCountError(f"how many experts of {name.strip('.')} a token meets is not in the configuration")
        return Fraction(self.chosen, self.experts)


def _peft_parts(module: nn.Module) -> Mapping[str, nn.Module] | None:
    """The parts of a PEFT wrapper that run, by name; None for any other module."""
    if not hasattr(module, "base_layer") and not hasattr(module, "original_module"):
        return None
    from peft.tuners.lora.layer import LoraLayer
    from peft.tuners.trainable_tokens.layer import TrainableTokensLayer
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper, TrainableTokensWrapper

    if isinstance(module, ModulesToSaveWrapper):
        active = [name for name in module.active_adapters if name in module.modules_to_save]
        kept = module.modules_to_save[active[0]] if active else module.original_module
        return {"modules_to_save" if active else "original_module": kept}
    if isinstance(module, TrainableTokensWrapper):
        return {"original_module": module.original_module}
    if isinstance(module, TrainableTokensLayer):
        return {"base_layer": module.base_layer}
    if isinstance(module, LoraLayer):
        parts: dict[str, nn.Module] = {"base_layer": module.base_layer}
        for side in ("lora_A", "lora_B"):
            found = getattr(module, side)
            parts |= {f"{side}.{name}": found[name] for name in module.active_adapters if name in found}
        for name in module.active_adapters:
            if name in module.lora_embedding_B:
                parts[f"lora_embedding_B.{name}"] = _AsLinear(module.lora_embedding_B[name])
        return parts
    if isinstance(module, BaseTunerLayer):
        raise CannotCountError(f"an adapter layer of type {type(module).__name__} is not counted")
    return None


class _AsLinear(nn.Linear):
    """The second factor of an adapter on the embedding, which is a bare parameter; the first is a look-up."""

    def __init__(self, weight: torch.Tensor) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.weight = nn.Parameter(weight) if not isinstance(weight, nn.Parameter) else weight


def _first_int(config: Any, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
