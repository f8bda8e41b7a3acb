import json

from torch.utils.data import Dataset


class PoemDataset(Dataset):
    """One poem per line: {"title": ..., "text": ...}"""

    def __init__(self, path, tokenizer, block):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.block = block

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        text = f"{row['title']}\n\n{row['text']}" + self.tokenizer.eos_token
        enc = self.tokenizer(
            text,
            truncation=True,
            max_length=self.block,
            padding="max_length",
            return_tensors="pt",
        )
        ids = enc["input_ids"][0]
        mask = enc["attention_mask"][0]
        labels = ids.masked_fill(mask == 0, -100)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
