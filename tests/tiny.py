"""Tiny models and a tokenizer made on the spot, so that the suite is strong without any file or download."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CORPUS = [
    "The quick brown fox jumps over the lazy dog and goes on to the river.",
    "What is two plus two? Two plus two is four. Name a colour: blue, red or green.",
    "She sells sea shells; he counts 0123456789 of them, and nobody asks why.",
]
SPECIAL = ["<pad>", "<eos>", "<|user|>", "<|assistant|>", "<|system|>"]


@cache
def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE with a chat template that marks what the assistant says."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_trained(), pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = CHAT
    return tokenizer


SHAPE: dict[str, Any] = {
    "vocab_size": 352,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def tiny_model(kind: str = "llama", seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model of two layers: `llama`, `qwen2`, `qwen3`, `gemma`, ..."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **{**SHAPE, **changes})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model


def sentences(n: int, seed: int = 0) -> Iterator[str]:
    """Short texts of the corpus' words, all different enough to be told apart by their loss."""
    generator = torch.Generator().manual_seed(seed)
    words = " ".join(CORPUS).split()
    for _ in range(n):
        length = int(torch.randint(2, 14, (), generator=generator))
        picks = torch.randint(0, len(words), (length,), generator=generator)
        yield " ".join(words[i] for i in picks.tolist())


def chats(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Conversations of one to three turns, some with a system message."""
    texts = sentences(n * 7, seed)
    rows: list[dict[str, Any]] = []
    for i in range(n):
        messages = [{"role": "system", "content": next(texts)}] if i % 3 == 0 else []
        for _ in range(1 + i % 3):
            messages += [{"role": "user", "content": next(texts)}, {"role": "assistant", "content": next(texts)}]
        rows.append({"messages": messages})
    return rows


def completions(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Prompt and completion as strings."""
    texts = sentences(2 * n, seed)
    return [{"prompt": next(texts) + ":", "completion": " " + next(texts)} for _ in range(n)]


def plain_texts(n: int, seed: int = 0) -> list[dict[str, Any]]:
    return [{"text": text} for text in sentences(n, seed)]
