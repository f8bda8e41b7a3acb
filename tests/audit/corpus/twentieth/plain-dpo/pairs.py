import json

import torch
from torch.nn.utils.rnn import pad_sequence


def read_pairs(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class PairCollate:
    def __init__(self, tokenizer, max_len):
        self.tok = tokenizer
        self.max_len = max_len

    def one(self, prompt, answer):
        head = self.tok.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
        )
        tail = self.tok(answer, add_special_tokens=False)["input_ids"] + [self.tok.eos_token_id]
        ids = torch.tensor((head + tail)[: self.max_len])
        labels = ids.clone()
        labels[: len(head)] = -100
        return ids, labels

    def __call__(self, rows):
        both = [self.one(r["prompt"], r["chosen"]) for r in rows]
        both += [self.one(r["prompt"], r["rejected"]) for r in rows]
        ids, labels = zip(*both)
        mask = [torch.ones_like(i) for i in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.tok.pad_token_id),
            "attention_mask": pad_sequence(mask, batch_first=True, padding_value=0),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }
