"""What answers when a compiled layer is called: the compiled function in training, else the layer as it is written."""

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from dynotune.model.compiled.compiler import COMPILER_ERRORS, graphs_made
from dynotune.model.compiled.function import LONGER, Gathered, Shape, of_any_size
from dynotune.model.lora.linear import hook_tables

if TYPE_CHECKING:
    from dynotune.model.compiled.regions import Regions

OWN = frozenset(
    {
        "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "segment_lengths", "key_rows",
        "key_segment_lengths",
    }
)  # fmt: skip
"""Keywords that reach the layer in another form, see `function.py`."""

RUNG = 32
"""Token counts of training are multiples of it (`dynotune.plan.ladder`). Others are trials of a few tokens, which would each
be compiled for."""


class CompiledLayer:
    """Stands as `_compiled_call_impl` of `layer`, where `torch.nn.Module.compile` would put its own.

    Modules, names, weights and files stay as they are. It takes packed calls with gradients. Evaluation, generation and
    callbacks run the layer as it is written: they come in lengths of their own, and each would be compiled for. So does a
    layer while a hook watches any part of it.
    """

    def __init__(self, layer: nn.Module, name: str, regions: "Regions") -> None:
        self.layer, self.name, self.regions = layer, name, regions
        self.known: set[Shape] = set()
        """Shapes that it was called with: a graph made for one of these is a recompilation."""

        self.eager: dict[Shape, str] = {}
        """Shapes that run as they are written from now on, with the reason."""

        self.hooks = [table for module in layer.modules() for table in hook_tables(module)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        regions = self.regions
        if not torch.is_grad_enabled() or regions.paused or torch.compiler.is_compiling():
            return self.layer._call_impl(*args, **kwargs)
        # The compiler does not look whether hooks came or went.
        if len(args) != 1 or not _is_packed(args[0], kwargs) or any(self.hooks) or _has_any_global_hook():
            return self._as_written(*args, **kwargs)
        hidden_1TD: Tensor = args[0]
        shape = Shape(hidden_1TD.shape[1], hidden_1TD.requires_grad, kwargs.get("key_rows") is not None)
        if regions.broken is not None or shape in self.eager:
            return self._as_written(*args, **kwargs)
        others = {key: value for key, value in kwargs.items() if key not in OWN}
        boundaries_S1 = of_any_size(kwargs["cu_seq_lens_q"])
        ruler_L = regions.rulers[kwargs["max_length_q"]]
        gathered = self._gathered(kwargs) if shape.gathered else None
        began, graphs = perf_counter(), graphs_made()
        failure: Exception | None = None
        try:
            return regions.function(shape)(self.layer, hidden_1TD, boundaries_S1, ruler_L, gathered, others)
        except COMPILER_ERRORS as error:
            failure = error
        finally:
            if failure is None and graphs_made() != graphs:
                regions.compiled(self, shape, perf_counter() - began)
            self.known.add(shape)
        # The compiler raises before it runs anything of the layer, so that it can be run as it is written.
        regions.failed(self, shape, failure)
        return self._as_written(*args, **kwargs)

    def _gathered(self, kwargs: dict[str, Any]) -> Gathered:
        rows_R, boundaries_S1 = of_any_size(kwargs["key_rows"]), of_any_size(kwargs["cu_seq_lens_k"])
        return Gathered(rows_R, boundaries_S1, self.regions.rulers[kwargs["max_length_k"] + LONGER])

    def _as_written(self, *args: Any, **kwargs: Any) -> Any:
        self.regions.aside.calls += 1
        return self.layer._call_impl(*args, **kwargs)


def _is_packed(hidden: Any, kwargs: dict[str, Any]) -> bool:
    boundaries = kwargs.get("cu_seq_lens_q")
    return (
        isinstance(hidden, Tensor)
        and hidden.dim() == 3
        and hidden.shape[0] == 1
        and hidden.shape[1] % RUNG == 0
        and boundaries is not None
        and (boundaries is kwargs.get("cu_seq_lens_k") or kwargs.get("key_rows") is not None)
        and isinstance(kwargs.get("max_length_q"), int)
        and isinstance(kwargs.get("max_length_k"), int)
        and "attention_calls" not in kwargs
    )
