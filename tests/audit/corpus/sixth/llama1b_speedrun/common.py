import json
import random

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "meta-llama/Llama-3.2-1B"
PEAK_TFLOPS = 1979.0  # H100 SXM, bf16


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def load(compile_model):
    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.float32, attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    return tok, torch.compile(model) if compile_model else model


def read_tokens(path, tok, max_len):
    """List of (ids, labels), prompt masked, eos at the end; tokenized once and kept on disk."""
    cache = f"{path}.{max_len}.pt"
    try:
        return torch.load(cache)
    except FileNotFoundError:
        pass
    rows = []
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        p = tok(r["prompt"] + "\n").input_ids
        a = tok(r["completion"] + tok.eos_token, add_special_tokens=False).input_ids
        ids = torch.tensor((p + a)[:max_len])
        labels = ids.clone()
        labels[: len(p)] = -100
        rows.append((ids, labels))
    torch.save(rows, cache)
    return rows


def collate(pad_id):
    def fn(batch):
        ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=pad_id)
        labels = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=-100)
        lengths = torch.tensor([len(b[0]) for b in batch])
        mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    return fn
