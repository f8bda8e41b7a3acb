"""Whole layers computed again in the backward pass: activation checkpointing as transformers has it, and exactly back.

Chen et al., arXiv 1604.06174. What is kept of a layer is its input; dropout draws the same masks again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from dynotune.errors import ConfigError
from dynotune.model.arguments import check_checkpointing
from dynotune.model.base import base_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SWITCHES = ("gradient_checkpointing", "_gradient_checkpointing_func", "_require_grads_hooks", "_require_grads_hook")
"""Attributes by which transformers remembers that it checkpoints."""

_ABSENT: Any = object()


def why_not(model: "PreTrainedModel") -> str | None:
    """Why the layers of `model` cannot be computed again; None if they can."""
    if not getattr(model, "supports_gradient_checkpointing", True):
        return f"{type(base_of(model)).__name__} does not support it"
    return None


def are_checkpointed(model: nn.Module) -> bool:
    """Whether any part of `model` is computed again already."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """Layers that are computed again, until `uninstall`."""

    model: "PreTrainedModel"
    before: list[tuple[nn.Module, dict[str, Any]]]
    had_hooks: bool
    places: tuple[str, ...]
    """Names of the layers. Where a model checkpoints otherwise than layer by layer: none."""

    def uninstall(self) -> None:
        """Every switch as it was. Twice is once."""
        if not self.had_hooks and getattr(self.model, "_require_grads_hooks", None):
            self.model.disable_input_require_grads()
        for module, switches in self.before:
            for name, value in switches.items():
                if value is not _ABSENT:
                    module.__dict__[name] = value
                elif name in module.__dict__:
                    delattr(module, name)


def checkpoint_layers(model: "PreTrainedModel", kwargs: Mapping[str, Any]) -> Checkpointed:
    """Switch it on. kwargs: as of `gradient_checkpointing_kwargs`; not reentrant unless they say so.

    Raises `ConfigError` where the model does not support it or transformers refuses the arguments.
    """
    if reason := why_not(model):
        raise ConfigError(f"`gradient_checkpointing: true`: {reason}. Take it out.")
    check_checkpointing(kwargs)  # what it does not know shows now, not in the first step
    given = {"use_reentrant": False, **kwargs}
    modules = [*model.modules()]
    before = [(m, {name: m.__dict__.get(name, _ABSENT) for name in _SWITCHES}) for m in modules]
    had_hooks = bool(getattr(model, "_require_grads_hooks", None))
    found = Checkpointed(model, before, had_hooks, names_of_layers(model))
    try:
        # transformers 5.2x renamed these; the old names still work there and warn.
        if hasattr(model, "activation_checkpointing_enable"):
            model.activation_checkpointing_enable(activation_checkpointing_kwargs=given)
        else:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=given)
    except (TypeError, ValueError) as error:
        found.uninstall()
        raise ConfigError(f"`gradient_checkpointing_kwargs: {dict(kwargs)}`: {error}") from error
    # The frozen embedding's output carries no gradient, and a checkpointed layer needs an input that does. transformers
    # sees to that by itself in most versions, and forgets its first hooks when it is asked twice.
    if hasattr(model, "peft_config") and not getattr(model, "_require_grads_hooks", None):
        model.enable_input_require_grads()
    return found


@contextmanager
def paused(model: nn.Module) -> Iterator[None]:
    """Inside, nothing is computed again."""
    switched = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    for module in switched:
        module.gradient_checkpointing = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in switched:
            module.gradient_checkpointing = True  # type: ignore[assignment]


def names_of_layers(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers that checkpoint themselves, the outermost; none where a model does it in another way."""
    names: list[str] = []
    for name, module in model.named_modules():
        is_layer = any(one.__name__ == "GradientCheckpointingLayer" for one in type(module).__mro__)
        if is_layer and not any(name.startswith(f"{outer}.") for outer in names):
            names.append(name)
    return tuple(names)
