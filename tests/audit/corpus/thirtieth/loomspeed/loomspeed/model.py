from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM


def tokenizer():
    tok = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM2-360M")
    tok.pad_token = tok.eos_token
    return tok


def build(vocab: int) -> LlamaForCausalLM:
    cfg = LlamaConfig(
        vocab_size=vocab,
        hidden_size=960,
        intermediate_size=2560,
        num_hidden_layers=32,
        num_attention_heads=15,
        num_key_value_heads=5,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return LlamaForCausalLM(cfg)
