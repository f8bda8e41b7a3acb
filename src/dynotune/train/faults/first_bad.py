"""The first place of a forward and backward pass where a value is not finite."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """Where, and what went in."""

    kind: str
    """`output`: what the module gave from finite inputs. `gradient of output`, `gradient of parameter`: in the backward
    pass, with every value of the forward pass finite."""

    name: str
    dtype: str
    input_max: str
    """The largest absolute value of the module's inputs. Empty where it is not of a module."""

    bad_parameters: tuple[str, ...] = ()
    """Its own parameters that are not finite themselves."""

    def __str__(self) -> str:
        if self.kind != "output":
            return f"the first {self.kind} that is not finite is that of {self.name} ({self.dtype})"
        said = f"layer {self.name} gave the first value that is not finite ({self.dtype}"
        said += f"; its input reached {self.input_max})" if self.input_max else ")"
        if self.bad_parameters:
            said += f"; its {', '.join(self.bad_parameters)} is not finite itself"
        return said

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class FirstBad:
    """Looks at every module's output and every gradient while it is entered. The host waits for the device at each."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.forward: Place | None = None
        self.backward: Place | None = None
        self._handles: list[Any] = []

    @property
    def place(self) -> Place | None:
        return self.forward or self.backward

    def __enter__(self) -> "FirstBad":
        for name, module in self.model.named_modules():
            if name:
                self._handles.append(module.register_forward_hook(self._after(name)))
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                self._handles.append(p.register_post_accumulate_grad_hook(self._of_parameter(name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _after(self, name: str) -> Any:
        def look(module: nn.Module, args: Any, output: Any) -> None:
            if self.forward is not None:
                return
            for y in tensors(output):
                if not finite(y):
                    own = tuple(n for n, p in module.named_parameters(recurse=False) if not finite(p))
                    self.forward = Place("output", name, str(y.dtype), largest(args), own)
                    return
                if y.requires_grad:
                    y.register_hook(self._of_output(name))

        return look

    def _of_output(self, name: str) -> Any:
        def look(gradient: Tensor) -> None:
            if self.backward is None and not finite(gradient):
                self.backward = Place("gradient of output", name, str(gradient.dtype), "")

        return look

    def _of_parameter(self, name: str) -> Any:
        def look(p: Tensor) -> None:
            if self.backward is None and p.grad is not None and not finite(p.grad):
                self.backward = Place("gradient of parameter", name, str(p.grad.dtype), "")

        return look


def tensors(value: Any) -> Iterator[Tensor]:
    """Floating tensors in what a module takes or gives."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)


def finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())


def largest(value: Any) -> str:
    found = [float(x.detach().abs().max()) for x in tensors(value) if x.numel()]
    return f"{max(found):.3g}" if found else ""
