"""Ranges around modules, so that a trace says where an event belongs. Nothing stays behind.

What a range stands around is the function that `Module.__call__` looks up on the instance: `forward`, also where a
speed-up put another one there, or `_compiled_call_impl` of a compiled module. Of a module inside of a compiled one nothing
may change, or it would be compiled again: there the compiled module is the place.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from dynotune.model.standing import RANGE

_CALL, _FORWARD = "_compiled_call_impl", "forward"


class Places:
    """Modules of a model that are to be told apart, by name."""

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        """Raises `ValueError` for a name that is no module of `model`."""
        self.model, self.names = model, tuple(dict.fromkeys(names))
        modules = dict(model.named_modules(remove_duplicate=False))
        unknown = [name for name in self.names if name not in modules]
        if unknown:
            raise ValueError(f"the model has no module named {', '.join(map(repr, unknown))}")

    def watched(self) -> dict[str, nn.Module]:
        """What gets a range, by name: the modules as asked, and compiled ones in the place of what lies in them."""
        found: dict[str, nn.Module] = {}
        for name in self.names:
            outermost = next((above for above in _path(name) if _attribute(self._module(above)) is not None), name)
            found[outermost] = self._module(outermost)
        once = {id(module): name for name, module in reversed(found.items())}
        return {name: module for name, module in found.items() if once[id(module)] == name}

    def _module(self, name: str) -> nn.Module:
        return self.model.get_submodule(name)


def _path(name: str) -> Iterable[str]:
    """The root, then each module on the way to `name`, and that itself."""
    parts = name.split(".") if name else []
    return (".".join(parts[:i]) for i in range(len(parts) + 1))


def _attribute(module: nn.Module) -> str | None:
    """The attribute through which a compiled module is entered; None for one that is not compiled."""
    if getattr(module, _CALL, None) is not None:
        return _CALL
    return _FORWARD if hasattr(module.forward, "_torchdynamo_orig_callable") else None


class Ranges:
    """A range around each of the modules, by name, inside a `with`."""

    def __init__(self, modules: Mapping[str, nn.Module], label: Callable[[str], str]) -> None:
        self.modules, self.label = modules, label
        self._called: set[str] = set()
        self._to_be_reached: set[str] = set()
        self._before: list[tuple[nn.Module, str, bool, Any, Any]] = []

    def __enter__(self) -> None:
        try:
            for name, module in self.modules.items():
                self._surround(module, name)
        except BaseException:
            self._restore()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def without_gradient(self) -> set[str]:
        """Modules that the backward pass cannot reach: at no call did an argument or a weight of theirs ask for a gradient.

        What they give does not count: a stand-in that loses a gradient on its way is not excused.
        """
        return self._called - self._to_be_reached

    def _surround(self, module: nn.Module, name: str) -> None:
        attribute = _attribute(module) or _FORWARD
        inner = getattr(module, attribute)
        ours = self._ranged(inner, module, name)
        # Not by setattr, which modules may overload.
        self._before.append((module, attribute, attribute in module.__dict__, module.__dict__.get(attribute), ours))
        module.__dict__[attribute] = ours

    def _restore(self) -> None:
        while self._before:
            module, attribute, was_there, before, ours = self._before.pop()
            if module.__dict__.get(attribute) is not ours:
                continue  # somebody has put another one there in the middle of the step, or has taken ours out
            if was_there:
                module.__dict__[attribute] = before
            else:
                del module.__dict__[attribute]

    def _ranged(self, inner: Callable[..., Any], module: nn.Module, name: str) -> Callable[..., Any]:
        label = self.label(name)

        @functools.wraps(inner, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                self._called.add(name)
                given = _tensors((*args, *kwargs.values()))
                if any(x.requires_grad for x in given) or any(weight.requires_grad for weight in module.parameters()):
                    self._to_be_reached.add(name)
            with record_function(label):
                return inner(*args, **kwargs)

        setattr(run, RANGE, True)
        return run


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """Those among arguments, also a few in a tuple."""
    for one in arguments:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from (x for x in one if isinstance(x, Tensor))
