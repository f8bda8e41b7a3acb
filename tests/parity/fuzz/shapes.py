"""Models and tokenizers of the fuzz: two random layers of many architectures, without dropout."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.tiny import CHAT, tiny_tokenizer

EXPERTS_OF = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"sliding_window": 12},
    "phi3": {},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "n_inner": 64},
    "gpt_neox": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": {"sliding_window": 16},
    "opt": {"dropout": 0.0, "attention_dropout": 0.0, "word_embed_proj_dim": 32, "ffn_dim": 64},
    "granite": {"logits_scaling": 4.0, "residual_multiplier": 0.5, "embedding_multiplier": 3.0},
    "cohere": {},
    "cohere2": {"sliding_window": 16},
    "starcoder2": {"residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0},
    "stablelm": {},
    "phi": {"resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "bloom": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "mixtral": {"num_local_experts": 4, "router_jitter_noise": 0.0},
    "smollm3": {"no_rope_layers": [1, 0]},
    "glm": {},
    "glm4": {},
    "exaone4": {"sliding_window": 16},
    "ernie4_5": {},
    "helium": {},
    "nemotron": {},
    "persimmon": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "arcee": {},
    "apertus": {},
    "seed_oss": {"attention_dropout": 0.0, "residual_dropout": 0.0},
    "hunyuan_v1_dense": {},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba": {"state_size": 8},
    "gpt_bigcode": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "mpt": {"n_layers": 2, "n_heads": 4, "d_model": 32},
    "bitnet": {},
    "ministral": {},
    "qwen2_moe": {**EXPERTS_OF, "shared_expert_intermediate_size": 32},
    "qwen3_moe": EXPERTS_OF,
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
}
EXPERTS = frozenset({"mixtral", "granitemoe", "qwen2_moe", "qwen3_moe", "olmoe"})
WITHOUT_BOUNDARIES = frozenset({"bloom", "mpt", "opt", "mamba", "lfm2"})
"""TRL's packed documents see each other in these, or it refuses them."""

OFTEN = ("llama", "qwen2", "qwen3", "gemma", "mistral", "phi3", "gpt2", "mixtral")
BY_PROJECTION = ("llama", "qwen2", "qwen3", "gemma", "mistral", "mixtral")
"""Those with q_proj, k_proj, v_proj and o_proj."""

LINES = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ (m['content'] or '') + eos_token }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ (m['content'] or '') + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
TOOLS = (
    "{% if tools %}{{ '<|system|>' + (tools | tojson) }}{% endif %}"
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] or '' }}"
    "{% for c in m['tool_calls'] or [] %}{{ c['function']['name'] + (c['function']['arguments'] | tojson) }}{% endfor %}"
    "{{ eos_token }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    "{% if mood is defined %}{{ mood }}{% endif %}"
)
TEMPLATES = {"plain": CHAT, "lines": LINES, "tools": TOOLS}


def tokenizer_of(how: dict[str, Any], shared: Path | None) -> PreTrainedTokenizerBase:
    """how: `template`; `bos`: whether plain text begins with a token; `pad`, `side`; `real`: a folder of `shared`."""
    if "real" in how:
        assert shared is not None
        real: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(shared / "tokenizers" / how["real"])
        return real
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATES[how["template"]]
    if how["bos"]:
        from tokenizers import processors

        tokenizer.add_special_tokens({"bos_token": "<|system|>"})
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<|system|> $A", special_tokens=[("<|system|>", tokenizer.bos_token_id)]
        )
    tokenizer.pad_token = how["pad"]
    tokenizer.padding_side = how["side"]
    return tokenizer
