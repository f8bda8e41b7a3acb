import json

from torch.utils.data import Dataset


class Chats(Dataset):
    """Conversations as messages; tokenised by the workers."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line)["messages"] for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Collate:
    def __init__(self, tokenizer, max_len):
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __call__(self, rows):
        texts = [self.tokenizer.apply_chat_template(r, tokenize=False) for r in rows]
        return self.tokenizer(
            texts,
            padding="longest",
            truncation=True,
            max_length=self.max_len,
            return_tensors="pt",
            add_special_tokens=False,
        )
