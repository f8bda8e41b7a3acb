from datasets import load_dataset


def load_sections(cfg, tokenizer, max_length):
    ds = load_dataset("json", data_files={"train": cfg["train"], "valid": cfg["valid"]})
    names = sorted(set(ds["train"]["section"]))
    index = {n: i for i, n in enumerate(names)}

    def encode(batch):
        enc = tokenizer(batch["text"], truncation=True, max_length=max_length)
        enc["labels"] = [index[s] for s in batch["section"]]
        return enc

    ds = ds.map(encode, batched=True, num_proc=cfg["num_proc"], remove_columns=ds["train"].column_names)
    return ds, names
