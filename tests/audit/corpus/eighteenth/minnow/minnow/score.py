import json

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from minnow.sft import BASE


def rows(path, tokenizer):
    with open(path, encoding="utf-8") as f:
        for line in f:
            turns = json.loads(line)["messages"]
            prompt = tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True)
            answer = tokenizer(turns[-1]["content"] + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
            yield prompt + answer, [-100] * len(prompt) + answer


def collate(part, pad):
    width = max(len(ids) for ids, _ in part)
    ids = torch.tensor([i + [pad] * (width - len(i)) for i, _ in part])
    labels = torch.tensor([t + [-100] * (width - len(t)) for _, t in part])
    mask = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in part])
    return ids, mask, labels


@torch.inference_mode()
def mean_loss(path, adapter, batch_size):
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    model = AutoPeftModelForCausalLM.from_pretrained(adapter, torch_dtype=torch.bfloat16)
    model.eval()

    data = sorted(rows(path, tokenizer), key=lambda r: len(r[0]))
    total, count = 0.0, 0
    for s in range(0, len(data), batch_size):
        ids, mask, labels = (t.to(model.device) for t in collate(data[s : s + batch_size], tokenizer.pad_token_id))
        n = (labels[:, 1:] != -100).sum()
        total += model(input_ids=ids, attention_mask=mask, labels=labels).loss.float() * n
        count += n
    return float(total / count)
