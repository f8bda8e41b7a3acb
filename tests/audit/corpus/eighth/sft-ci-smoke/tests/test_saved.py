import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def test_files(saved):
    assert os.path.exists(os.path.join(saved, "model.safetensors"))
    assert not os.path.exists(os.path.join(saved, "pytorch_model.bin"))


def test_forward(saved):
    tok = AutoTokenizer.from_pretrained(saved)
    model = AutoModelForCausalLM.from_pretrained(saved)
    ids = tok("<|user|>hello<|end|><|assistant|>", add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(ids).logits
    assert logits.shape[-1] == len(tok) and not torch.isnan(logits).any().item()
