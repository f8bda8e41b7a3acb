from datasets import load_dataset


def to_prompt_completion(row):
    return {"prompt": row["prefix"], "completion": row["body"]}


def load(cfg, seed):
    ds = load_dataset("json", data_files=cfg.path, split="train")
    ds = ds.map(to_prompt_completion, remove_columns=ds.column_names)
    parts = ds.train_test_split(test_size=cfg.eval_fraction, seed=seed)
    return parts["train"], parts["test"]
