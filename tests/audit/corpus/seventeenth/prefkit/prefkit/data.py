from datasets import load_dataset


def build_pairs(cfg, tokenizer):
    raw = load_dataset("json", data_files=cfg.path, split="train")

    def convert(row):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        return {
            "prompt": prompt,
            "chosen": prompt + row["better"],
            "rejected": prompt + row["worse"],
        }

    ds = raw.map(convert, remove_columns=raw.column_names, num_proc=4)
    return ds.train_test_split(test_size=cfg.test_size, seed=13)
