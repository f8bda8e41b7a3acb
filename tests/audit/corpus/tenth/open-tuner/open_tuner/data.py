import torch
from datasets import load_dataset


def _encode(tokenizer, messages, max_length):
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=True, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(messages, tokenize=True)[:max_length]
    labels = [-100] * min(len(prompt), len(ids)) + ids[len(prompt):]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def build_preference_dataset(name, tokenizer, max_length, num_proc=8):
    def encode(row):
        out = {}
        for side in ("chosen", "rejected"):
            for k, v in _encode(tokenizer, row[side], max_length).items():
                out[f"{side}_{k}"] = v
        return out

    ds = load_dataset(name, split="train")
    return ds.map(encode, num_proc=num_proc, remove_columns=ds.column_names)


class PreferenceCollator:
    def __init__(self, pad_id):
        self.fill = {"input_ids": pad_id, "attention_mask": 0, "labels": -100}

    def __call__(self, rows):
        width = max(len(r[f"{s}_input_ids"]) for r in rows for s in ("chosen", "rejected"))
        batch = {}
        for side in ("chosen", "rejected"):
            for k, fill in self.fill.items():
                seqs = [r[f"{side}_{k}"] + [fill] * (width - len(r[f"{side}_{k}"])) for r in rows]
                batch[f"{side}_{k}"] = torch.tensor(seqs)
        return batch
