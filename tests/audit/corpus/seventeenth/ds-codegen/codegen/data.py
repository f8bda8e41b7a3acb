from datasets import load_dataset


def load_scripts(path, tokenizer, max_length):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        texts = [t + tokenizer.eos_token for t in batch["content"]]
        return tokenizer(texts, truncation=True, max_length=max_length)

    ds = ds.map(encode, batched=True, num_proc=16, remove_columns=ds.column_names)
    return ds.train_test_split(test_size=0.01, seed=0)
