from datasets import load_dataset


def build(cfg, tokenizer):
    raw = load_dataset("json", data_files=cfg.data.path, split="train")

    def encode(row):
        prompt = tokenizer(f"Article: {row['article']}\nSummary:")["input_ids"]
        target = tokenizer(" " + row["summary"], truncation=True, max_length=256)["input_ids"] + [tokenizer.eos_token_id]
        room = cfg.data.max_len - len(target)
        prompt = prompt[:room]
        pad = cfg.data.max_len - len(prompt) - len(target)
        return {
            "input_ids": prompt + target + [tokenizer.pad_token_id] * pad,
            "attention_mask": [1] * (len(prompt) + len(target)) + [0] * pad,
            "labels": [-100] * len(prompt) + target + [-100] * pad,
        }

    rows = raw.map(encode, remove_columns=raw.column_names, num_proc=4)
    return rows.train_test_split(test_size=500, seed=cfg.seed)
