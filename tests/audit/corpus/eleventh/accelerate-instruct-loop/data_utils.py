from torch.utils.data import Dataset

PROMPT = "### Instruction:\n{instruction}\n\n### Response:\n"


class InstructDataset(Dataset):
    """Keeps the raw rows; a row is tokenized when it is asked for."""

    def __init__(self, rows, tokenizer, max_length):
        self.rows = rows
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        prompt = self.tokenizer(PROMPT.format(instruction=row["instruction"]))["input_ids"]
        answer = self.tokenizer(row["output"] + self.tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        input_ids = (prompt + answer)[: self.max_length]
        labels = ([-100] * len(prompt) + answer)[: self.max_length]
        return {"input_ids": input_ids, "attention_mask": [1] * len(input_ids), "labels": labels}
