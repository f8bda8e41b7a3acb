import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import AutoTokenizer


class StoryDataset(Dataset):
    """One story a line, an end-of-text token after each."""

    def __init__(self, path, max_len):
        self.tokenizer = AutoTokenizer.from_pretrained("openai-community/gpt2")
        self.max_len = max_len
        with open(path, encoding="utf-8") as f:
            self.lines = [line.strip() for line in f if line.strip()]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        ids = self.tokenizer(self.lines[i], truncation=True, max_length=self.max_len)["input_ids"]
        return torch.tensor(ids + [self.tokenizer.eos_token_id])


def collate(batch):
    x = pad_sequence([b[:-1] for b in batch], batch_first=True, padding_value=0)
    y = pad_sequence([b[1:] for b in batch], batch_first=True, padding_value=-100)
    return x, y
