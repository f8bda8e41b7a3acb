from datasets import load_dataset


def build_dataset(path, tokenizer, block_size=512):
    dataset = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        texts = [text + tokenizer.eos_token for text in batch["text"]]
        enc = tokenizer(texts, truncation=True, max_length=block_size, padding="max_length")
        enc["labels"] = [
            [tok if keep else -100 for tok, keep in zip(ids, mask)]
            for ids, mask in zip(enc["input_ids"], enc["attention_mask"])
        ]
        return enc

    dataset = dataset.map(encode, batched=True, remove_columns=dataset.column_names)
    return dataset.with_format("torch")
