"""A head alone, with random inputs in which about half of the probability is on the target, as in a model in fine-tuning.

Legend of shapes: T tokens, N labelled ones, D hidden, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynotune.model.head import Head
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.packed import PackedBatch
from dynotune.objectives.sft import SFTObjective


class Problem:
    """T tokens, a head of V x D, a share of labelled tokens, and the objective's plain path in float32 as the judge."""

    def __init__(
        self, device: torch.device, tokens: int, width: int, vocabulary: int, *,
        share: float = 1.0, trained: bool = False, bias: bool = False, precision: torch.dtype = torch.bfloat16,
        weight_precision: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        random = torch.Generator(device=device).manual_seed(11)
        self.layer = nn.Linear(width, vocabulary, bias=bias, device=device, dtype=weight_precision or precision)
        self.layer.weight.data.normal_(std=2.5 / math.sqrt(width), generator=random)
        self.layer.requires_grad_(trained)
        targets_T = torch.randint(0, vocabulary, (tokens,), device=device, generator=random)
        hidden_TD = torch.randn(tokens, width, device=device, generator=random)
        hidden_TD += 15 / 6.25 * self.layer.weight.data[targets_T].float()
        self.hidden_TD = hidden_TD.to(precision).requires_grad_()
        n = int(tokens * share)
        predictors_N = torch.randperm(tokens, device=device, generator=random)[:n].sort().values
        self.batch = PackedBatch(
            hidden_TD.new_zeros(tokens, dtype=torch.int64), hidden_TD.new_zeros(tokens, dtype=torch.int64),
            torch.tensor([0, tokens], dtype=torch.int32, device=device), predictors_N, targets_T[predictors_N], (tokens,), 1,
        )  # fmt: skip
        self.wanted = [self.hidden_TD, *(p for p in self.layer.parameters() if p.requires_grad)]

    def head(self, logits: LogitMap) -> Head:
        return Head(self.layer, logits, self.layer.out_features)

    def ours(self, logits: LogitMap, objective: SFTObjective) -> tuple[Tensor, ...]:
        loss, _ = self.head(logits)(self.hidden_TD, self.batch, objective)
        loss = loss / len(self.batch.targets_N)
        return loss.detach(), *torch.autograd.grad(loss, self.wanted)

    def plain(
        self, logits: LogitMap, objective: SFTObjective, precision: torch.dtype | None = None
    ) -> tuple[Tensor, ...]:
        """Full logits and autograd. In `precision`, or as the plain path would: in the tensors' own."""
        rows_ND = self.hidden_TD[self.batch.predictors_N]
        weight, bias = self.layer.weight, self.layer.bias
        if precision is not None:
            rows_ND, weight, bias = (
                rows_ND.to(precision),
                weight.to(precision),
                None if bias is None else bias.to(precision),
            )
        z_NV = logits(F.linear(rows_ND, weight, bias))
        # The objective shifts: row t predicts label t + 1.
        labels = F.pad(self.batch.targets_N, (1, 0))
        loss, _ = objective(F.pad(z_NV, (0, 0, 0, 1)), labels)
        loss = loss / len(self.batch.targets_N)
        return loss.detach(), *torch.autograd.grad(loss, self.wanted)


def float32_reference(problem: Problem, logits: LogitMap, objective: SFTObjective) -> tuple[Tensor, ...]:
    """The same inputs, multiplied in float32, with float32 gradients of float32 leaves."""
    kept = problem.hidden_TD, problem.layer, problem.wanted
    problem.hidden_TD = kept[0].detach().float().requires_grad_()
    layer = nn.Linear(kept[1].in_features, kept[1].out_features, bias=kept[1].bias is not None, device=kept[0].device)
    layer.load_state_dict(kept[1].state_dict())
    problem.layer = layer.requires_grad_(kept[1].weight.requires_grad)
    problem.wanted = [problem.hidden_TD, *(p for p in layer.parameters() if p.requires_grad)]
    result = problem.plain(logits, objective)
    problem.hidden_TD, problem.layer, problem.wanted = kept
    return result
