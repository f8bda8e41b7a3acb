from datasets import load_dataset


def load_tokenized(path, tokenizer, max_len):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(row):
        ids = tokenizer.apply_chat_template(row["messages"], tokenize=True)
        return {"input_ids": ids[:max_len]}

    return ds.map(encode, remove_columns=ds.column_names, num_proc=8)


class Collator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        batch = self.tokenizer.pad(rows, padding="longest", pad_to_multiple_of=8, return_tensors="pt")
        batch["labels"] = batch["input_ids"].clone()
        return batch
