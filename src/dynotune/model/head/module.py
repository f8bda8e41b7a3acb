"""Any other head, such as one with an adapter: its own forward and backward, chunk by chunk.

Legend of shapes: T tokens, D hidden, V vocabulary, N label tokens, C rows of one chunk.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dynotune.model.head.chunks import CHUNK_BYTES, chunks
from dynotune.model.head.rows import statistics
from dynotune.model.head.walk import Done, Work


def through_module(module: nn.Module, vocabulary: int, work: Work) -> Done:
    """Walk, under the caller's autocast.

    The trained tensors are read off each chunk's graph, since a head may use a parameter that is registered elsewhere (a
    tied embedding's). Their gradients come in their own precision from each chunk and are summed in float32.
    Dropout inside the head is drawn once a chunk. A chunk has half the rows of a linear head's, since the module's logits
    stay until its backward pass is done.
    """
    n, form = len(work.targets_N), work.form
    # Without label tokens the module still says, by a chunk without rows, what it trains.
    plan = chunks(n, vocabulary, work.hidden_TD.element_size(), CHUNK_BYTES // 2) or [(0, 0)]
    done: Done | None = None
    parts: list[Tensor] = []
    totals: dict[Tensor, Tensor] = {}
    for first, end in plan:
        with torch.no_grad():
            rows_CD = work.rows_of(first, end)
        rows_CD.requires_grad_(form and work.hidden_TD.requires_grad)
        with torch.set_grad_enabled(form):
            z_CV = module(rows_CD)
        with torch.no_grad():
            if done is None:
                done = Done(statistics(n, z_CV))
            gradient_CV = (
                z_CV.detach().clone() if z_CV.requires_grad else z_CV
            )  # the module's backward may need its output
            work.rows(
                gradient_CV,
                work.targets_N[first:end],
                work.loss,
                work.logits,
                z_CV.requires_grad,
                done.rows_3N[:, first:end],
            )
        if not z_CV.requires_grad:
            continue
        sources = [leaf for leaf in leaves(z_CV) if leaf is not rows_CD]
        wanted = [rows_CD, *sources] if rows_CD.requires_grad else sources
        gradients = list(torch.autograd.grad(z_CV, wanted, gradient_CV))
        del z_CV, gradient_CV
        if rows_CD.requires_grad:
            parts.append(gradients.pop(0))
        for source, gradient in zip(sources, gradients, strict=True):
            if source in totals:
                totals[source] += gradient
            else:
                totals[source] = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    assert done is not None
    if parts:
        done.gradient_ND = torch.cat(parts)
        if work.logits.before != 1.0:
            done.gradient_ND *= work.logits.before
    done.trained, done.gradients = list(totals), list(totals.values())
    return done


def trained_by_module(module: nn.Module, hidden_TD: Tensor) -> list[Tensor]:
    """What a walk that forms gradients gives gradients of: asked of the module by a chunk without rows."""
    with torch.enable_grad():
        z_CV = module(hidden_TD.detach()[:0])
    return list(leaves(z_CV))


def leaves(result: Tensor) -> Iterator[Tensor]:
    """The tensors in which the graph of `result` begins, each once."""
    seen: set[object] = set()
    nodes = [result.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(variable := getattr(node, "variable", None), Tensor):
            yield variable
        nodes += [parent for parent, _ in node.next_functions]
