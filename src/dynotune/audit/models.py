"""What a model's name tells: its family, sizes and the names of its linear layers, by the families' configurations.

Names are all that an audit has before anything is loaded; a name that is not in the table tells nothing.
"""

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Family:
    """Models of one `model_type` and vocabulary."""

    pattern: str
    """Of the last part of the name, in lower case."""

    model_type: str
    vocabulary: int
    sizes: tuple[tuple[float, int, int], ...]
    """Billions of parameters as the name has them, hidden size, layers."""

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def fits(self, name: str) -> bool:
        return self._compiled.search(name) is not None


@dataclass(frozen=True)
class Known:
    """What is known of one model."""

    model_type: str
    vocabulary: int
    billions: float | None = None
    """Of parameters; None where the name has no size that the family has."""

    hidden: int | None = None
    layers: int | None = None


_NOT_TEXT = r"(?!.*(vl|audio|vision|omni|moe|embed|reward|-a\d))"

FAMILIES = (
    Family(rf"^qwen-?2(\.5)?[-_]{_NOT_TEXT}", "qwen2", 151_936, (
        (0.5, 896, 24), (1.5, 1536, 28), (3, 2048, 36), (7, 3584, 28), (14, 5120, 48),
        (32, 5120, 64), (72, 8192, 80))),
    Family(rf"^qwen-?3[-_]{_NOT_TEXT}", "qwen3", 151_936, (
        (0.6, 1024, 28), (1.7, 2048, 28), (4, 2560, 36), (8, 4096, 36), (14, 5120, 40),
        (32, 5120, 64))),
    Family(rf"^(meta-)?llama-?3([.-]|$){_NOT_TEXT}", "llama", 128_256, (
        (1, 2048, 16), (3, 3072, 28), (8, 4096, 32), (70, 8192, 80))),
    Family(r"^llama-?2[-_]", "llama", 32_000, ((7, 4096, 32), (13, 5120, 40), (70, 8192, 80))),
    Family(r"^tinyllama", "llama", 32_000, ((1.1, 2048, 22),)),
    Family(r"^smollm2?-", "llama", 49_152, (
        (0.135, 576, 30), (0.36, 960, 32), (1.7, 2048, 24))),
    Family(r"^mistral-7b|^zephyr-7b", "mistral", 32_000, ((7, 4096, 32),)),
    Family(r"^gemma-2-", "gemma2", 256_000, ((2, 2304, 26), (9, 3584, 42), (27, 4608, 46))),
    Family(r"^gemma-\d+b", "gemma", 256_000, ((2, 2048, 18), (7, 3072, 28))),
    Family(r"^gemma-3-(1b|270m)", "gemma3_text", 262_144, ((1, 1152, 26), (0.27, 640, 18))),
    Family(r"^phi-3-mini|^phi-3\.5-mini", "phi3", 32_064, ((3.8, 3072, 32),)),
    Family(r"^olmo-2-", "olmo2", 100_352, ((1, 2048, 16), (7, 4096, 32), (13, 5120, 40))),
    Family(r"^gpt2", "gpt2", 50_257, (
        (0.124, 768, 12), (0.355, 1024, 24), (0.774, 1280, 36), (1.558, 1600, 48))),
    Family(r"^pythia-", "gpt_neox", 50_304, (
        (0.07, 512, 6), (0.16, 768, 12), (0.41, 1024, 24), (1, 2048, 16),
        (1.4, 2048, 24), (2.8, 2560, 32), (6.9, 4096, 32), (12, 5120, 36))),
    Family(r"^opt-", "opt", 50_272, (
        (0.125, 768, 12), (0.35, 1024, 24), (1.3, 2048, 24), (2.7, 2560, 32), (6.7, 4096, 32), (13, 5120, 40))),
    Family(r"^bloom", "bloom", 250_880, ((0.56, 1024, 24), (1.1, 1536, 24), (7.1, 4096, 30))),
)  # fmt: skip

READERS: tuple[tuple[str, str, int, float, int, int], ...] = (
    (r"^bert-base-", "bert", 30_522, 0.11, 768, 12),
    (r"^bert-large-", "bert", 30_522, 0.335, 1024, 24),
    (r"^roberta-base$", "roberta", 50_265, 0.125, 768, 12),
    (r"^roberta-large$", "roberta", 50_265, 0.355, 1024, 24),
    (r"^xlm-roberta-base$", "xlm-roberta", 250_002, 0.278, 768, 12),
    (r"^xlm-roberta-large$", "xlm-roberta", 250_002, 0.56, 1024, 24),
    (r"^distilbert-base-", "distilbert", 30_522, 0.066, 768, 6),
    (r"^distilroberta-base$", "roberta", 50_265, 0.082, 768, 6),
    (r"^electra-base-discriminator$", "electra", 30_522, 0.11, 768, 12),
    (r"^electra-small-discriminator$", "electra", 30_522, 0.014, 256, 12),
    (r"^modernbert-base$", "modernbert", 50_368, 0.149, 768, 22),
    (r"^modernbert-large$", "modernbert", 50_368, 0.395, 1024, 28),
    (r"^(flan-)?t5-small$", "t5", 32_128, 0.077, 512, 16),
    (r"^(flan-)?t5-base$", "t5", 32_128, 0.25, 768, 24),
    (r"^(flan-)?t5-large$", "t5", 32_128, 0.78, 1024, 48),
    (r"^bart-base$", "bart", 50_265, 0.139, 768, 12),
    (r"^bart-large(-cnn|-xsum|-mnli)?$", "bart", 50_265, 0.406, 1024, 24),
)  # fmt: skip
"""Models that read in both directions, by a pattern of the name: type, vocabulary, billions of parameters, hidden size,
layers of encoder and decoder. Not in the table above, whose models all write one token after the other."""

_LLAMA = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})

LINEARS = {
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "gemma": _LLAMA,
    "gemma2": _LLAMA,
    "gemma3_text": _LLAMA,
    "olmo2": _LLAMA,
    "phi3": frozenset({"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}),
    "gpt2": frozenset({"c_attn", "c_proj", "c_fc"}),
    "gpt_neox": frozenset({"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
    "opt": frozenset({"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}),
    "bloom": frozenset({"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
}
"""The linear layers inside the blocks of each type, as transformers names them."""

_BERT = frozenset({"query", "key", "value", "dense"})
OF_READERS = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "electra": _BERT,
    "distilbert": frozenset({"q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"}),
    "modernbert": frozenset({"Wqkv", "Wi", "Wo"}),
    "t5": frozenset({"q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo"}),
    "bart": frozenset({"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}),
}
"""The same of models that read in both directions. T5 has either `wi` or its two halves."""

_NAMED = (
    "classifier pre_classifier score dense out_proj pooler decoder lm_head shared embed_tokens qa_outputs"
    " word_embeddings position_embeddings token_type_embeddings tok_embeddings embeddings_project relative_attention_bias"
    " embed_positions cls head classification_head"
)
_HEADS = frozenset(_NAMED.split())
"""What they have beside, under one task's head or another's."""

OTHERS = {
    "gpt2": {"wte", "wpe", "lm_head"},
    "gpt_neox": {"embed_in", "embed_out", "lm_head"},
    "bloom": {"word_embeddings", "lm_head"},
    "opt": {"embed_tokens", "embed_positions", "project_in", "project_out", "lm_head"},
}
"""Layers outside of blocks that an adapter may be put on, where they have other names than `embed_tokens` and `lm_head`."""

_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])")
_ALIASES = {
    "gpt2": 0.124, "gpt2-medium": 0.355, "gpt2-large": 0.774, "gpt2-xl": 1.558, "pythia-160m": 0.16, "bloom": None,
}  # fmt: skip

_OF_ONE_SIZE = {"tinyllama_v1": 1.1, "tinyllama-v1": 1.1, "phi-3-mini": 3.8, "phi-3.5-mini": 3.8}
"""Names that leave the size out, of families that have one alone."""


def known(name: object) -> Known | None:
    """What the name of a model tells, as hubs and folders have it. None: nothing."""
    if not isinstance(name, str) or not name.strip("/ "):
        return None
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    family = next((family for family in FAMILIES if family.fits(last)), None)
    if family is None:
        return None
    size = _size(last)
    for billions, hidden, layers in family.sizes:
        if size is not None and abs(size - billions) < 0.04 * billions:
            return Known(family.model_type, family.vocabulary, billions, hidden, layers)
    return Known(family.model_type, family.vocabulary)


def reader(name: object) -> Known | None:
    """What the name of an encoder, or of an encoder with a decoder, tells. None: it is none that is known."""
    if not isinstance(name, str):
        return None
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    return next((Known(*one[1:]) for one in READERS if re.search(one[0], last)), None)


def _size(name: str) -> float | None:
    found = _SIZE.search(name)
    if found is None:
        return next((size for start, size in _OF_ONE_SIZE.items() if name.startswith(start)), _ALIASES.get(name))
    return float(found[1]) * (1 if found[2] == "b" else 1e-3)


def layers_of(model_type: str) -> frozenset[str]:
    """Every name of a layer that an adapter can be put on. Empty: the type is not in the table."""
    if model_type in OF_READERS:
        return OF_READERS[model_type] | _HEADS
    linears = LINEARS.get(model_type)
    return linears | OTHERS.get(model_type, {"embed_tokens", "lm_head"}) if linears else frozenset()
