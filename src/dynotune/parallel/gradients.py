"""The sum of gradients over ranks, once a step behind the last micro-batch.

Gradients are of losses over the denominator of the whole step, so they are summed and not averaged. PyTorch's
DistributedDataParallel divides by the number of ranks and hangs on a module's `forward`, which packed execution does not
call; hence data parallel without that wrapper, with its idea of buckets: S. Li et al., "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training", arXiv 2006.15704.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET = 64 << 20
"""Bytes of small gradients that travel together: a message of its own for each would cost more than its bytes."""

ALONE = 8 << 20
"""Bytes from which a gradient travels by itself and is not copied."""

IN_FLIGHT = 3
"""Messages under way at a time: each holds a bucket's memory."""


def sum_gradients(
    parameters: Sequence[Tensor], group: dist.ProcessGroup, on_any_rank: Callable[[list[bool]], list[bool]]
) -> None:
    """Each parameter's gradient becomes its sum over `group`, in the order of `parameters`, which is the same everywhere.

    A gradient that is missing on this rank counts as zeros where another rank has it, and stays missing where none has.

    on_any_rank: from flags [parameters] of this rank, whether each is set on any.
    """
    wanted = on_any_rank([p.grad is not None for p in parameters])
    summed = [p for p, on in zip(parameters, wanted, strict=True) if on]
    for p in summed:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        assert not p.grad.is_sparse, "gradients are dense: no embedding is made with `sparse=True`"
    pending: deque[Callable[[], None]] = deque()
    for bucket in _buckets([p.grad for p in summed if p.grad is not None]):
        if len(pending) == IN_FLIGHT:
            pending.popleft()()
        pending.append(_send(bucket, group))
    while pending:
        pending.popleft()()


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients of one type and device that travel together, in their order: by sizes, which are the same on every rank."""
    together: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if gradient.nbytes >= ALONE:  # whatever its strides here: other ranks must come to the same messages
            yield [gradient]
            continue
        other = together and (gradient.dtype, gradient.device) != (together[0].dtype, together[0].device)
        if together and (other or size + gradient.nbytes > BUCKET):
            yield together
            together, size = [], 0
        together.append(gradient)
        size += gradient.nbytes
    if together:
        yield together


def _send(bucket: list[Tensor], group: dist.ProcessGroup) -> Callable[[], None]:
    """Start the sum of these gradients; what is returned puts it in place, without the host waiting for a GPU."""
    if len(bucket) == 1 and bucket[0].is_contiguous():
        work = dist.all_reduce(bucket[0], group=group, async_op=True)
        assert work is not None
        return lambda: (work.wait(), None)[1]
    flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
    views = [part.view_as(g) for part, g in zip(flat.split([g.numel() for g in bucket]), bucket, strict=True)]
    work = dist.all_reduce(flat, group=group, async_op=True)
    assert work is not None

    def finish() -> None:
        work.wait()
        torch._foreach_copy_(bucket, views)

    return finish
