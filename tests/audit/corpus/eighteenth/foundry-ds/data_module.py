import json

from torch.utils.data import Dataset

IGNORE = -100


class ChatDataset(Dataset):
    """Rows of {"messages": [...]}; the loss is taken on the last assistant turn."""

    def __init__(self, path, tokenizer, max_length):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f if line.strip()]
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        turns = self.rows[i]["messages"]
        prompt = self.tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True)
        answer = self.tokenizer(
            turns[-1]["content"] + self.tokenizer.eos_token, add_special_tokens=False
        )["input_ids"]
        ids = (prompt + answer)[: self.max_length]
        labels = ([IGNORE] * len(prompt) + answer)[: self.max_length]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
