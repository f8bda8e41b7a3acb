"""Which model is trained, with which tokenizer, in which precision."""

from typing import Any, Literal

from pydantic import Field, field_validator

from dynotune.config.keys.topic import Topic

LEAST_BUDGET = 0.15


class ModelConfig(Topic):
    model_name_or_path: str | None = None
    """A hub id, a folder with weights, or (with `random_weights`) a folder or `config.json` that describes a model."""

    model_revision: str = "main"
    """Branch, tag or commit of the model and tokenizer on the hub."""

    random_weights: bool = False
    """Build the model from its configuration with weights drawn from `seed`, and load none."""

    tokenizer_name_or_path: str | None = None
    """Where the tokenizer comes from. Default: `model_name_or_path`."""

    trust_remote_code: bool = False
    """Run Python code that the model's repository brings. Off unless asked for."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = None
    """Precision of the weights. Default: LoRA on a GPU takes a bfloat16 base with float32 adapters; full fine-tuning
    keeps float32 masters and computes in bfloat16; float32 on the CPU. `auto` takes the checkpoint's. Full
    fine-tuning of bfloat16 weights is behavioural: at small learning rates most of them never move."""

    bf16: bool | None = None
    """Compute in bfloat16 (autocast). Default: yes on a GPU that has it, no on the CPU."""

    attn_implementation: str | None = None
    """Attention implementation of transformers (`sdpa`, `eager`, `flash_attention_2`, ...) on the plain path and for
    generations. Packed execution has its own attention, of which names of kernels ask for one by name: `flash_attention_2`
    for the speed-up `attention_varlen` (PyTorch's own FlashAttention-2, no package needed), `flash_attention_3` for
    `attention_fa3`, `flash_attention_4` for `attention_fa4`, `flex_attention` for `attention_flex`. It runs and is proved,
    or the run stops. Default: the model's own, and in packed execution the fastest that works here."""

    model_init_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `from_pretrained`, as in TRL. `dtype`, `attn_implementation`, `revision` and `trust_remote_code`
    among them are the keys of these names. `device_map` is refused."""

    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward pass: less memory, about a third more time, the same result. Default: as
    `activation_memory` decides (TRL's default is on)."""

    gradient_checkpointing_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of `gradient_checkpointing_enable`."""

    activation_memory: Literal["auto", "none", "selective", "full", "offload"] = "auto"
    """What is done with activations between forward and backward, always with the same result. `none`: all are kept;
    `selective`: results of norms and gated activations are made again; `full`: layers are computed again from their
    inputs; `offload`: the same, and the inputs wait in host memory. `auto`: the fastest that fits, smaller micro-batches
    before any recomputation, tried out on the largest micro-batch before the first step and remembered.
    `gradient_checkpointing: true` asks for `full`, or for `offload` beside a key that asks for it, and `false` for `none`;
    keys that contradict each other are refused."""

    activation_memory_budget: float | None = Field(default=None, le=1.0)
    """With compiled layers: the share of activations that they may keep, cheap operations made again first
    (`torch._functorch.config.activation_memory_budget`). At least 0.15: below it the peak goes up again. Default: 1."""

    @field_validator("activation_memory_budget", mode="after")
    @classmethod
    def _is_a_share_that_saves(cls, share: float | None) -> float | None:
        if share is not None and share < LEAST_BUDGET:
            raise ValueError(
                f"below {LEAST_BUDGET} the peak of memory goes up again (pytorch issue 197838), so this would save nothing."
                f" Write {LEAST_BUDGET} or more, or `activation_memory: full`."
            )
        return share

    eos_token: str | None = None
    """The token that ends a turn or a text; must be in the vocabulary. Default: the tokenizer's."""

    pad_token: str | None = None
    """The padding token; must be in the vocabulary. Default: the tokenizer's, else its end token."""

    added_tokens: list[str] = Field(default_factory=list)
    """New tokens for the tokenizer; the embedding grows to hold them, and their rows are trained."""

    neftune_noise_alpha: float | None = Field(default=None, gt=0)
    """NEFTune (arXiv 2310.05914): noise added to the embeddings while training. Behavioural."""
