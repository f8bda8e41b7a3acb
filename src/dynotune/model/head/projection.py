"""Which module turns hidden states into logits, and what PEFT made of it."""

from typing import Any, TypeGuard

from torch import nn


def base_of(model: Any) -> Any:
    """The transformers model inside PEFT's wrapper, where there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def projection(model: Any) -> nn.Module | None:
    """The module that turns hidden states into logits, with what PEFT put around it."""
    module = base_of(model).get_output_embeddings()
    return module if isinstance(module, nn.Module) else None


def active(module: nn.Module) -> nn.Module:
    """The module that works at present: a head that PEFT trains in full is a copy beside the original."""
    from peft.utils import ModulesToSaveWrapper

    if not isinstance(module, ModulesToSaveWrapper):
        return module
    if module.disable_adapters or not module.active_adapters:
        inner = module.original_module
    else:
        inner = module.modules_to_save[module.active_adapters[0]]
    assert isinstance(inner, nn.Module)
    return inner


def is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether `module` is a plain linear layer, to which nobody has added anything."""
    return (
        isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward
        and "forward" not in vars(module)  # accelerate's hooks replace it on the instance
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
    )


def vocabulary(module: nn.Module) -> int:
    """Logits a row, as the widest linear layer inside says; sizes chunks, so nothing depends on its being right."""
    widths = [int(part.out_features) for part in module.modules() if isinstance(part, nn.Linear)]
    return max(widths, default=1 << 18)
