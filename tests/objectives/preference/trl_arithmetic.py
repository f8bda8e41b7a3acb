"""TRL's own `DPOTrainer._compute_loss`, run on given log-probabilities: no model, no tokens, its arithmetic alone.

The trainer, its model and its accelerator are stand-ins that hand over numbers; what is computed with them is TRL's.
Legend of shapes: P pairs, Q = 2P sequences (chosen first, as TRL stacks them), L positions.
"""

from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dynotune.objectives.preference.pairs import Answers

PROMPT = 3
"""Positions before the first label."""


@dataclass(frozen=True)
class Tokens:
    """What a model says of every label token. All are [Q, L - 1] and 0 where there is no label, as TRL's head gives them."""

    logps: Tensor
    reference: Tensor
    log_sum_squares: Tensor
    entropy: Tensor
    mean_logits: Tensor
    top1: Tensor
    mask: Tensor
    """[Q, L]: 1 at label tokens."""

    @classmethod
    def drawn(cls, lengths_Q: list[int], seed: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> "Tokens":
        """Random ones for answers of these lengths; `scale` stretches the log-probabilities."""
        generator = torch.Generator().manual_seed(seed)
        width = PROMPT + max(lengths_Q)
        places = torch.arange(width)
        mask = torch.stack([(places >= PROMPT) & (places < PROMPT + length) for length in lengths_Q]).long()

        def draw() -> Tensor:
            return (
                torch.rand(len(lengths_Q), width - 1, generator=generator, dtype=torch.float64).to(dtype) * mask[:, 1:]
            )

        logps = -draw() * scale
        return cls(
            logps.requires_grad_(),
            -draw() * scale,
            -draw() * scale,
            draw(),
            draw(),
            (draw() > 0.5) & mask[:, 1:].bool(),
            mask,
        )

    def side(self, first: bool) -> Answers:
        """Chosen (the first half) or rejected answers, with everything that any loss needs."""
        half = slice(None, len(self.mask) // 2) if first else slice(len(self.mask) // 2, None)
        lengths = self.mask.sum(1)
        shorter = torch.minimum(*lengths.chunk(2)).repeat(2)
        mask = self.mask[:, 1:]
        tail = (mask.cumsum(1) > shorter[:, None]) & mask.bool()
        return Answers(
            self.logps.sum(1)[half],
            lengths[half],
            self.reference.sum(1)[half],
            tails_P=(self.logps * tail).sum(1)[half],
            reference_tails_P=(self.reference * tail).sum(1)[half],
            agreement_P=((self.logps - self.log_sum_squares) * mask).sum(1)[half].detach(),
        )


class _Accelerator:
    device = torch.device("cpu")
    parallelism_config = None

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    gather_for_metrics = gather


class _Model(torch.nn.Module):
    """Says what it was given; a gradient goes to `tokens.logps`."""

    is_gradient_checkpointing = False

    def __init__(self, tokens: Tokens, *, reference: bool) -> None:
        super().__init__()
        self.tokens, self.logps = tokens, tokens.reference if reference else tokens.logps

    def forward(self, **_: Any) -> SimpleNamespace:
        tokens = self.tokens
        return SimpleNamespace(
            log_probs=self.logps,
            entropy=tokens.entropy,
            mean_logits=tokens.mean_logits,
            is_top1=tokens.top1,
            log_sum_sq_probs=tokens.log_sum_squares,
        )


def trl_loss(tokens: Tokens, settings: dict[str, Any]) -> tuple[Tensor, dict[str, float]]:
    """TRL's mean loss over the pairs (with gradient to `tokens.logps`), and what it logs.

    settings: fields of TRL's DPOConfig.
    """
    from trl import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    args = DPOConfig(output_dir="unused", bf16=False, use_cpu=True, report_to="none", **settings)
    trainer = SimpleNamespace(
        accelerator=_Accelerator(),
        model=_Model(tokens, reference=False),
        ref_model=_Model(tokens, reference=True),
        args=args,
        aux_loss_enabled=False,
        precompute_ref_logps=False,
        loss_types=args.loss_type,
        loss_weights=args.loss_weights or [1.0] * len(args.loss_type),
        beta=args.beta,
        ld_alpha=args.ld_alpha,
        f_divergence_type=args.f_divergence_type,
        f_alpha_divergence_coef=args.f_alpha_divergence_coef,
        label_smoothing=args.label_smoothing,
        use_weighting=args.use_weighting,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {
        "input_ids": torch.zeros_like(tokens.mask),
        "attention_mask": torch.ones_like(tokens.mask),
        "completion_mask": tokens.mask,
    }
    loss = DPOTrainer._compute_loss(trainer, trainer.model, inputs, return_outputs=False)
    return loss, {name: values[0] for name, values in trainer._metrics["train"].items()}
