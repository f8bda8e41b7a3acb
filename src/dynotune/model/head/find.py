"""Find a model's head, and ask the model itself, with numbers, whether it was understood.

Legend of shapes: T tokens of the probe, D hidden, V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.model.attention.decoder import text_decoder
from dynotune.model.base import base_of
from dynotune.model.head.head import Head
from dynotune.model.head.kernel import row_function
from dynotune.model.head.logit_map import LogitMap, suggested
from dynotune.model.head.projection import projection, vocabulary

_REACH = 90.0
"""Largest output of the projection that the probe makes up: far beyond every soft cap in use (15 to 50)."""


@dataclass(frozen=True, slots=True)
class Found:
    """The head of a model, or the reason why its logits cannot be formed in chunks, for a sentence."""

    head: Head | None
    why_not: str | None


def find_head(model: Any, ids_T: Tensor) -> Found:
    """The head of `model`, PEFT-wrapped or not, proved on the few tokens `ids_T` [T].

    Two forward passes, under the caller's autocast and with the model's own attention. In the first the projection's output
    is replaced by made-up values over a wide range, so that what the model does to it shows even where a new model's logits
    are near zero. In the second the logits of the inner model's hidden states are compared.

    Tolerance: 4 units of the logits' precision (1e-5 in float32) relative to each logit and to the largest one, because two
    ways of multiplying round differently.
    """
    module = projection(model)
    if module is None:
        return Found(None, "it has no output projection of its own")
    with torch.no_grad(), _as_in_training(model):
        seen = _look(model, module, ids_T)
        if isinstance(seen, str):
            return Found(None, seen)
        scales, caps = suggested(base_of(model))
        reason = ""
        for cap, scale in product(caps, scales):
            off = _differ(seen.stock_of_made_up_TV, LogitMap(scale, cap)(seen.made_up_TV))
            if off is None:
                break
            reason = reason or f"what it does to its projection's output is not known here: {off}"
        else:
            return Found(None, reason)
        for before in dict.fromkeys([1.0, *scales]):
            head = Head(module, LogitMap(scale, cap, before), vocabulary(module))
            off = _differ(seen.stock_TV, head.few_logits(seen.hidden_TD))
            if off is None:
                row_function(seen.hidden_TD.device)  # tried out here: it compiles, and waits for the device
                return Found(head, None)
            reason = reason or f"its logits are not its projection of the hidden states: {off}"
        return Found(None, reason)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the model's own forward pass made of the projection's output, made up and real."""

    made_up_TV: Tensor
    stock_of_made_up_TV: Tensor
    hidden_TD: Tensor
    stock_TV: Tensor


def _look(model: Any, module: nn.Module, ids_T: Tensor) -> _Seen | str:
    made_up: list[Tensor] = []

    def replace(_: nn.Module, args: Any, output: Any) -> Any:
        if not isinstance(output, Tensor):
            return output
        made_up.append(torch.linspace(-_REACH, _REACH, output.numel(), device=output.device).view(output.shape))
        return made_up[-1]

    with _hooked(module, replace):
        stock_of_made_up_TV = _stock_logits(model, ids_T)
    if len(made_up) != 1:
        return f"its output projection gives {len(made_up)} tensors in one forward pass, not one"
    inner: list[Any] = []
    with _hooked(text_decoder(model), lambda _, args, output: inner.append(output)):
        stock_TV = _stock_logits(model, ids_T)
    if len(inner) != 1 or not isinstance(getattr(inner[0], "last_hidden_state", None), Tensor):
        return f"its {type(text_decoder(model)).__name__} does not return hidden states once in a forward pass"
    made_up_TV = made_up[0].reshape(-1, made_up[0].shape[-1])
    return _Seen(made_up_TV, stock_of_made_up_TV, inner[0].last_hidden_state[0], stock_TV)


def _differ(stock_TV: Tensor, ours_TV: Tensor) -> str | None:
    if stock_TV.shape != ours_TV.shape:
        return f"{tuple(stock_TV.shape)} logits, {tuple(ours_TV.shape)} expected"
    unit = max(4 * torch.finfo(stock_TV.dtype).eps, 1e-5)
    stock, ours = stock_TV.double(), ours_TV.double()
    off = torch.where(stock == ours, 0.0, (stock - ours).abs()).nan_to_num(nan=torch.inf)
    allowed = unit * (ours.abs() + ours.abs().amax())
    if bool((off <= allowed).all()):
        return None
    return f"logits differ by up to {float(off.amax()):.3g}, beyond {unit:.1g} relative"


def _stock_logits(model: Any, ids_T: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=ids_T[None], use_cache=False).logits
    return logits[0]


@contextmanager
def _hooked(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _as_in_training(model: nn.Module) -> Iterator[None]:
    """Without dropout in the layers, but the model itself as in training: what it does to logits then must show.

    Every module gets its own mode back: some may be in evaluation mode on purpose.
    """
    with ExitStack() as restore:
        for module in model.modules():
            restore.callback(setattr, module, "training", module.training)
        model.eval()
        base_of(model).training = True  # not what it contains
        yield
