import json

import torch


def load_rows(path, tok, max_len=768):
    """All rows are encoded once and kept in memory (about 9k rows)."""
    rows = []
    with open(path) as f:
        for line in f:
            r = json.loads(line)
            essay = tok(f"Essay:\n{r['essay']}")["input_ids"]
            cue = tok("\n\nFeedback:\n")["input_ids"]
            answer = tok(r["feedback"])["input_ids"] + [tok.eos_token_id]
            prompt = essay[: max_len - len(cue) - len(answer)] + cue
            ids = torch.tensor(prompt + answer)
            labels = ids.clone()
            labels[: len(prompt)] = -100
            rows.append((ids, labels))
    return rows


def collate(batch):
    n = max(len(i) for i, _ in batch)
    ids = torch.zeros(len(batch), n, dtype=torch.long)
    mask = torch.zeros(len(batch), n, dtype=torch.long)
    labels = torch.full((len(batch), n), -100)
    for k, (i, l) in enumerate(batch):
        ids[k, : len(i)], mask[k, : len(i)], labels[k, : len(l)] = i, 1, l
    return ids, mask, labels
