import json

from torch.utils.data import Dataset

PROMPT = "### Instruction:\n{instruction}\n\n### Response:\n"


class AlpacaDataset(Dataset):
    def __init__(self, path, tokenizer, max_len):
        with open(path) as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        text = PROMPT.format(instruction=row["instruction"]) + row["output"] + self.tokenizer.eos_token
        enc = self.tokenizer(
            text,
            truncation=True,
            max_length=self.max_len,
            padding="max_length",
            return_tensors="pt",
        )
        input_ids = enc["input_ids"][0]
        labels = input_ids.clone()
        labels[enc["attention_mask"][0] == 0] = -100
        return {
            "input_ids": input_ids,
            "attention_mask": enc["attention_mask"][0],
            "labels": labels,
        }
