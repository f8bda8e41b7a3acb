"""A byte-level tokenizer made in the test: no shared data, no download, every Unicode text round-trips."""

from functools import lru_cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = (
    "<s>",
    "</s>",
    "<pad>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
)

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

GENERATION = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + eos_token }}"
    "{% endgeneration %}{% else %}{{ m['content'] + '\n' }}{% endif %}{% endfor %}"
)

_CORPUS = (
    "The quick brown fox jumps over the lazy dog. What is two plus two? Two plus two is four.",
    "user assistant system tool\n\n  def answer(x):\n    return x + 1\n",
    "one\n\n\ntwo\n\n\nthree\n\n\nfour\n\n\nfive\n\n",
    "Über naïve Straßen läuft ein Café; 中文 日本語 текст 🙂🙂",
)


@lru_cache
def _backend(trim_offsets: bool) -> str:
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(_CORPUS * 4, trainer)
    if trim_offsets:
        fast.post_processor = processors.ByteLevel(trim_offsets=True)
    return fast.to_str()


def made_tokenizer(
    template: str | None = CHATML, *, eos: str | None = "<|im_end|>", adds_bos: bool = False, trim_offsets: bool = False
) -> PreTrainedTokenizerFast:
    """`adds_bos`: put `<s>` before plain text, as Llama's tokenizers do."""
    fast = Tokenizer.from_str(_backend(trim_offsets))
    if adds_bos:
        fast.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", fast.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>", eos_token=eos, pad_token="<pad>")
    tokenizer.chat_template = template
    return tokenizer
