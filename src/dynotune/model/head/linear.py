"""A head that is one linear layer: two matrix products a chunk, a third where its weight is trained.

Legend of shapes: T tokens, D hidden, V vocabulary, N label tokens, C rows of one chunk.
"""

import torch
from torch import Tensor

from dynotune.model.head.chunks import chunks
from dynotune.model.head.products import add_product, product, result_precision
from dynotune.model.head.rows import statistics
from dynotune.model.head.walk import Done, Work

_ALIGNED = 64
"""Elements. A vocabulary of odd size makes rows that no fast matrix product can write; this stride between them does."""


def compute_precision(weight_VD: Tensor) -> torch.dtype:
    """What a linear layer multiplies in: autocast's precision where it is on, else the weight's."""
    kind = weight_VD.device.type
    if weight_VD.dtype is not torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


def through_linear(weight_VD: Tensor, bias_V: Tensor | None, work: Work) -> Done:
    """Walk. Logits stand in the compute precision in one buffer, where the row function replaces them by their gradient."""
    n, vocabulary = len(work.targets_N), weight_VD.shape[0]
    precision = compute_precision(weight_VD)
    form_hidden = work.form and work.hidden_TD.requires_grad
    form_weight = work.form and weight_VD.requires_grad
    form_bias = work.form and bias_V is not None and bias_V.requires_grad
    device = weight_VD.device
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        weight = weight_VD.to(precision)
        bias = None if bias_V is None else bias_V.to(precision)
        plan = chunks(n, vocabulary, precision.itemsize)
        done = Done(statistics(n, weight))
        if form_hidden:
            done.gradient_ND = torch.empty(n, weight.shape[1], dtype=result_precision(weight), device=device)
        weight_gradient: Tensor | None = None
        bias_gradient = torch.zeros(vocabulary, dtype=done.rows_3N.dtype, device=device) if form_bias else None
        most = max((end - first for first, end in plan), default=0)
        buffer = torch.empty(most, -(-vocabulary // _ALIGNED) * _ALIGNED, dtype=precision, device=device)
        for first, end in plan:
            rows_CD = work.rows_of(first, end).to(precision)
            z_CV = buffer[: end - first, :vocabulary]
            if bias is None:
                torch.mm(rows_CD, weight.t(), out=z_CV)
            else:
                torch.addmm(bias, rows_CD, weight.t(), out=z_CV)
            work.rows(
                z_CV,
                work.targets_N[first:end],
                work.loss,
                work.logits,
                form_hidden or form_weight or form_bias,
                done.rows_3N[:, first:end],
            )
            if done.gradient_ND is not None:
                product(z_CV, weight, done.gradient_ND[first:end])
            if form_weight:
                weight_gradient = add_product(weight_gradient, z_CV.t(), rows_CD)
            if bias_gradient is not None:
                bias_gradient += z_CV.sum(0, dtype=bias_gradient.dtype)
        if done.gradient_ND is not None and work.logits.before != 1.0:
            done.gradient_ND *= work.logits.before
        if form_weight:
            if weight_gradient is None:
                weight_gradient = torch.zeros(weight_VD.shape, dtype=done.rows_3N.dtype, device=device)
            done.trained.append(weight_VD)
            done.gradients.append(weight_gradient)
        if bias_gradient is not None:
            assert bias_V is not None
            done.trained.append(bias_V)
            done.gradients.append(bias_gradient)
    return done
