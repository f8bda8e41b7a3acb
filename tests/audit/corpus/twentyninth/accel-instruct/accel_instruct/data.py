from datasets import load_dataset
from torch.utils.data import DataLoader, Dataset


class InstructDataset(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.rows = load_dataset("json", data_files=path, split="train")
        self.tokenizer = tokenizer
        self.max_len = max_len

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tokenizer(f"User: {row['instruction']}\nAssistant:").input_ids
        answer = self.tokenizer(f" {row['output']}", add_special_tokens=False).input_ids
        answer = answer + [self.tokenizer.eos_token_id]
        ids = (prompt + answer)[: self.max_len]
        labels = ([-100] * len(prompt) + answer)[: self.max_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def make_loader(path, tokenizer, max_len, batch_size, collator):
    dataset = InstructDataset(path, tokenizer, max_len)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collator,
        num_workers=0,
    )
