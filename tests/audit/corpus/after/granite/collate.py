import torch


class ChatCollator:
    def __init__(self, tokenizer, max_tokens):
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    def __call__(self, rows):
        batch = self.tokenizer.pad(
            [{"input_ids": r["input_ids"][: self.max_tokens]} for r in rows],
            padding="longest",
            pad_to_multiple_of=8,
            return_tensors="pt",
        )
        labels = batch["input_ids"].clone()
        labels[labels == self.tokenizer.pad_token_id] = -100
        batch["labels"] = labels
        return batch


def tokenize(row, tokenizer):
    text = f"### Question:\n{row['question']}\n\n### Answer:\n{row['answer']}{tokenizer.eos_token}"
    return {"input_ids": tokenizer(text)["input_ids"]}
