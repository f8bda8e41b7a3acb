import torch
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence


def build_pairs(path, tokenizer, max_length):
    rows = load_dataset("json", data_files=path, split="train")

    def encode(row):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], add_generation_prompt=True
        )
        out = {}
        for side in ("chosen", "rejected"):
            answer = tokenizer(row[side], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            out[f"{side}_ids"] = (prompt + answer)[:max_length]
            out[f"{side}_labels"] = ([-100] * len(prompt) + answer)[:max_length]
        return out

    return rows.map(encode, remove_columns=rows.column_names)


def make_collate(pad_id):
    def collate(rows):
        ids = [torch.tensor(r["chosen_ids"]) for r in rows] + [torch.tensor(r["rejected_ids"]) for r in rows]
        labels = [torch.tensor(r["chosen_labels"]) for r in rows] + [torch.tensor(r["rejected_labels"]) for r in rows]
        mask = [torch.ones_like(x) for x in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id),
            "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }

    return collate
