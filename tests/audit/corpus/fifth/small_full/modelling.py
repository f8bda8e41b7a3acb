import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(name):
    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=torch.float32,
        device_map="auto",
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    return model, tok
