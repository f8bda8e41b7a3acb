"""What moves while a run is not warm yet: compilations, kernels made, memory taken from the device. Each only ever grows."""

import torch

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
    found = {"compilations": _compilations(), "kernels": _made["kernels"]}
    if device.type == "cuda":
        memory = torch.cuda.memory_stats(device)
        found["segments"] = int(memory.get("segment.all.allocated", 0))
        found["retries"] = int(memory.get("num_alloc_retries", 0))
    return found


def compile_seconds() -> float:
    """Of this process so far: what dynamo took to make graphs, forward and backward."""
    from torch._dynamo.utils import calculate_time_spent

    return float(calculate_time_spent().get("total_wall_time", 0.0))


def _compilations() -> int:
    """Graphs that dynamo has made."""
    from torch._dynamo.utils import counters as of_dynamo

    return int(of_dynamo["stats"]["unique_graphs"])
