"""LoRA and its relatives: PEFT injects and saves them."""

from typing import Any, Literal

from pydantic import Field, field_validator

from dynotune.config.keys.topic import Topic

_REGEX_SIGNS = frozenset("*\\|()[]{}^$+?")


class AdapterConfig(Topic):
    use_peft: bool = False
    """Train a LoRA adapter instead of the model's own weights."""

    lora_r: int = Field(default=16, gt=0, le=2**16)
    """Rank of the adapter."""

    lora_alpha: int = Field(default=32, gt=0, le=2**24)
    """The adapter's output is scaled by `lora_alpha / lora_r` (by `lora_alpha / sqrt(lora_r)` with `use_rslora`)."""

    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    """Dropout on the adapter's input."""

    lora_target_modules: list[str] | str | None = None
    """Names of modules to adapt (one or a list), a regular expression, or `all-linear`. Default: PEFT's own choice for the
    architecture, as in TRL (often q_proj and v_proj only). A name that matches nothing is an error."""

    @field_validator("lora_target_modules", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, value: Any) -> Any:
        # PEFT takes every word for a regular expression of the whole module path, which a plain name never matches;
        # TRL makes a list of one such a word.
        word = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(word, str):
            return value
        return word if word.lower() == "all-linear" or _REGEX_SIGNS & set(word) else [word]

    lora_target_parameters: list[str] | None = None
    """Names of bare parameters to adapt (experts of some MoE models)."""

    lora_modules_to_save: list[str] | None = None
    """Modules trained in full beside the adapter and saved with it."""

    lora_task_type: Literal["CAUSAL_LM"] = "CAUSAL_LM"
    """PEFT's task type."""

    use_rslora: bool = False
    """Rank-stabilised scaling (arXiv 2312.03732)."""

    use_dora: bool = False
    """Weight-decomposed adapters (arXiv 2402.09353); runs through PEFT's own forward."""

    init_lora_weights: bool | str = True
    """How PEFT initialises the adapter: `true`, `gaussian`, `pissa`, `pissa_niter_16`, `olora`, `orthogonal`, ..."""
