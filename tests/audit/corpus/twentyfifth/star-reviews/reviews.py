from datasets import load_dataset

MAX_LENGTH = 512


def load_reviews(path, tokenizer):
    ds = load_dataset("csv", data_files=path, split="train")

    def encode(batch):
        enc = tokenizer(
            batch["text"],
            truncation=True,
            padding="max_length",
            max_length=MAX_LENGTH,
        )
        enc["labels"] = [int(s) - 1 for s in batch["stars"]]
        return enc

    return ds.map(
        encode,
        batched=True,
        remove_columns=ds.column_names,
        load_from_cache_file=False,
    )
