"""Which policy stands in a model, setting it aside, and what another one would save."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from dynotune.model.activations.cheap import Cheap, adapter_drops_out, remake_cheap
from dynotune.model.activations.host import InHostMemory
from dynotune.model.activations.keeping import Around
from dynotune.model.activations.layers import are_checkpointed, paused
from dynotune.model.activations.remade import Remaking
from dynotune.model.base import base_of


def policy_of(model: Any) -> str:
    """As `activation_memory` calls it, by what is there."""
    around = _around(_decoder(model))
    if around is not None and isinstance(around.keeper, InHostMemory):
        return "offload"
    if are_checkpointed(model):
        return "full"
    return "selective" if around is not None and isinstance(around.keeper, Remaking) else "none"


@contextmanager
def out_of_the_way(model: Any) -> Iterator[None]:
    """Inside, everything is kept, where autograd puts it."""
    around = _around(_decoder(model))
    with ExitStack() as back, paused(model):
        if around is not None:
            around.take_out()
            back.callback(around.put_in)
        yield


def cheap_bytes(model: Any, run: Callable[[int], Any], compute: torch.dtype) -> int:
    """Bytes a token of results that the policy `selective` does or would not keep; 0 where it cannot be.

    run: as in `dynotune.measure.memory.per_token`.
    """
    around = _around(_decoder(model))
    if around is not None and isinstance(around.keeper, Remaking):
        return not_kept(around.keeper, run)
    if adapter_drops_out(model):
        return 0
    with out_of_the_way(model):
        found = remake_cheap(model, _decoder(model), compute)
        if not isinstance(found, Cheap):
            return 0
        try:
            return not_kept(found.remaking, run)
        finally:
            found.uninstall()


def not_kept(remaking: Remaking, run: Callable[[int], Any]) -> int:
    """Bytes a token that `remaking`, which stands around the decoder that `run` runs, did not keep."""
    few, many = 64, 128
    found: list[int] = []
    with torch.enable_grad():
        for tokens in (few, many):
            run(tokens)
            found.append(remaking.not_kept)
    return (found[1] - found[0]) // (many - few)


def _decoder(model: Any) -> Any:
    return base_of(model).get_decoder()


@contextmanager
def told(decoder: nn.Module, remaking: Remaking) -> Iterator[None]:
    """Inside, `remaking` stands around `decoder`."""
    around = Around(decoder, remaking)
    around.put_in()
    try:
        yield
    finally:
        around.take_out()


def _around(decoder: nn.Module) -> Around | None:
    found = decoder.__dict__.get("forward")
    return found if isinstance(found, Around) else None
