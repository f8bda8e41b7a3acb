import torch
from torch import nn
from transformers import AutoModel


class ScoreHead(nn.Module):
    """Two layers with a running mean of the score (so that 0 means 'average answer')."""

    def __init__(self, hidden: int, momentum: float = 0.99):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, 256)
        self.fc2 = nn.Linear(256, 1)
        self.momentum = momentum
        self.mean = 0.0

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        s = self.fc2(torch.nn.functional.silu(self.fc1(self.norm(h)))).squeeze(-1)
        if self.training:
            if torch.isnan(s).any():
                raise FloatingPointError("nan in the score head")
            self.mean = self.momentum * self.mean + (1 - self.momentum) * s.detach().mean().item()
        return s - self.mean


class RewardModel(nn.Module):
    def __init__(self, name: str, lora=None):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="sdpa")
        hidden = self.backbone.config.hidden_size
        if lora is not None:
            from peft import get_peft_model

            # without this checkpointing finds no gradient at the frozen embeddings
            self.backbone.enable_input_require_grads()
            self.backbone = get_peft_model(self.backbone, lora)
        self.head = ScoreHead(hidden).float()

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
        self.backbone.gradient_checkpointing_enable(gradient_checkpointing_kwargs)

    def forward(self, input_ids, attention_mask):
        h = self.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        last = attention_mask.sum(1) - 1                      # right padding
        h = h[torch.arange(h.size(0), device=h.device), last]
        return self.head(h.float())
