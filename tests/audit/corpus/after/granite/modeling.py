import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer


def load_tokenizer(settings):
    tokenizer = AutoTokenizer.from_pretrained(settings.name)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def load_model(settings):
    model = AutoModelForCausalLM.from_pretrained(
        settings.name,
        dtype=torch.bfloat16,
        attn_implementation=settings.attention,
        device_map=settings.device_map,
    )
    model.config.use_cache = False
    return model


def adapter():
    return LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
