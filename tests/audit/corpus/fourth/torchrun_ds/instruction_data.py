"""Rows of the instruction file as token ids, with the loss on the response."""
import json
import logging

import torch
from torch.utils.data import Dataset

log = logging.getLogger(__name__)

IGNORE_INDEX = -100
RESPONSE_MARKER = "### Answer:\n"


def mask_prompt(text, tokenizer, max_len):
    """Ids and labels of one document; everything up to and including the marker is ignored."""
    enc = tokenizer(text, truncation=True, max_length=max_len, return_offsets_mapping=True)
    ids = enc["input_ids"]
    labels = list(ids)
    at = text.find(RESPONSE_MARKER)
    if at >= 0:
        begin = at + len(RESPONSE_MARKER)
        for i, (start, _) in enumerate(enc["offset_mapping"]):
            if start < begin:
                labels[i] = IGNORE_INDEX
    return ids, labels


class InstructionDataset(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.rows = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                text = json.loads(line)["text"] + tokenizer.eos_token
                ids, labels = mask_prompt(text, tokenizer, max_len)
                self.rows.append({"input_ids": ids, "labels": labels})
        log.info("%d rows, response-only loss", len(self.rows))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class InstructionCollator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        ids = [torch.tensor(r["input_ids"]) for r in rows]
        labels = [torch.tensor(r["labels"]) for r in rows]
        masks = [torch.ones_like(x) for x in ids]

        def pad(seqs, value):
            return torch.nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=value)

        return {
            "input_ids": pad(ids, self.pad_id),
            "labels": pad(labels, IGNORE_INDEX),
            "attention_mask": pad(masks, 0),
        }
