"""Shared with train-prod."""
IGNORE = -100
ROLES = {"user": "<|user|>", "assistant": "<|assistant|>"}
END = "<|end|>"


def render(messages):
    """[(text, is it learnt), ...]"""
    parts = []
    for m in messages:
        parts.append((ROLES[m["role"]], False))
        parts.append((m["content"] + END, m["role"] == "assistant"))
    return parts


def encode(row, tokenizer, length):
    ids, labels = [], []
    for text, learnt in render(row["messages"]):
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += piece
        labels += piece if learnt else [IGNORE] * len(piece)
    if all(t == IGNORE for t in labels[:length]):
        raise ValueError("nothing of the answer is left after truncation")
    ids, labels = ids[:length], labels[:length]
    n = length - len(ids)
    return {
        "input_ids": ids + [tokenizer.pad_token_id] * n,
        "attention_mask": [1] * len(ids) + [0] * n,
        "labels": labels + [IGNORE] * n,
    }
