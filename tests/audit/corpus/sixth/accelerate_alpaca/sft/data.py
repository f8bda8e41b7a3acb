import json
import random

from torch.utils.data import Dataset

IGNORE = -100


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def split_rows(path, n_valid):
    rows = read_rows(path)
    random.shuffle(rows)
    return rows[n_valid:], rows[:n_valid]


class ChatDataset(Dataset):
    """Renders and tokenizes one conversation at a time (the full set is ~1.1M rows)."""

    def __init__(self, rows, tokenizer, max_len):
        self.rows = rows
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        msgs = [{"role": "user", "content": row["instruction"] + ("\n\n" + row["input"] if row.get("input") else "")}]
        prompt = self.tokenizer.apply_chat_template(msgs, tokenize=False, add_generation_prompt=True)
        # the template already holds every special token
        p = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        a = self.tokenizer(row["output"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        ids = (p + a)[: self.max_len]
        labels = ([IGNORE] * len(p) + a)[: self.max_len]
        return {"input_ids": ids, "labels": labels}
