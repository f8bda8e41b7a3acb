"""What moves while a run is not warm yet: compilations, kernels made, memory taken from the device. Each only ever grows."""

import torch

from dynotune.measure.compiles import graphs
from dynotune.model.step_graphs import graphs_made

_made = {"kernels": 0}
_counting = False


def count_kernels() -> None:
    """From here on kernels that Triton compiles are counted, where there is Triton."""
    global _counting
    if _counting:
        return
    try:
        from triton import knobs
    except ImportError:
        return  # no Triton, no kernels of its own
    before = knobs.runtime.jit_post_compile_hook

    def count(*args: object, **more: object) -> object:
        _made["kernels"] += 1
        return before(*args, **more) if before is not None else None

    knobs.runtime.jit_post_compile_hook = count
    _counting = True


def counters(device: torch.device) -> dict[str, int]:
    """By what is counted, how often so far in this process."""
    found = {"compilations": graphs(), "kernels": _made["kernels"], "graph_captures": graphs_made()}
    if device.type == "cuda":
        memory = torch.cuda.memory_stats(device)
        found["segments"] = int(memory.get("segment.all.allocated", 0))
        found["retries"] = int(memory.get("num_alloc_retries", 0))
    return found
