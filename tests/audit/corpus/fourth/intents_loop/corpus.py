"""The intent rows, tokenised once and kept as plain lists."""
import json
import random

import torch


def read_rows(path, tokenizer, max_len=96):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            prompt = tokenizer(f"Utterance: {r['text']}\nIntent:", add_special_tokens=False)["input_ids"]
            answer = tokenizer(f" {r['intent']}", add_special_tokens=False)["input_ids"]
            answer.append(tokenizer.eos_token_id)
            ids = prompt + answer
            if len(ids) <= max_len:
                rows.append((ids, len(prompt)))
    return rows


def collate(rows, pad_id):
    """Right padding. The labels follow from the lengths and never from the pad id:
    this tokenizer pads with its EOS token, and the EOS at the end of an answer has
    to keep its loss."""
    width = max(len(ids) for ids, _ in rows)
    input_ids = torch.full((len(rows), width), pad_id)
    labels = torch.full((len(rows), width), -100)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, (ids, n_prompt) in enumerate(rows):
        n = len(ids)
        input_ids[i, :n] = torch.tensor(ids)
        labels[i, n_prompt:n] = torch.tensor(ids[n_prompt:])
        mask[i, :n] = 1
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}


def length_buckets(rows, batch_size, seed):
    """Batches of similar length in random order. Rows of the same eight-token band
    are shuffled too, so that the batches differ from epoch to epoch."""
    rng = random.Random(seed)
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i][0]) // 8, rng.random()))
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    rng.shuffle(batches)
    return batches
