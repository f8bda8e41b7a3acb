from datasets import load_dataset


def load_splits(path, tokenizer, max_length):
    raw = load_dataset("json", data_files=path, split="train")
    raw = raw.rename_column("queue", "label").class_encode_column("label")
    names = raw.features["label"].names
    split = raw.train_test_split(test_size=0.1)

    def encode(batch):
        return tokenizer(batch["text"], truncation=True, padding="max_length", max_length=max_length)

    split = split.map(encode, batched=True, remove_columns=["text"])
    return split["train"], split["test"], names
