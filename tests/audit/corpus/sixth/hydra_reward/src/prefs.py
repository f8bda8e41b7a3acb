from datasets import load_dataset


def load_prefs(train_path, eval_path):
    """Rows {prompt, chosen, rejected} of strings -> implicit-prompt conversations."""
    ds = load_dataset("json", data_files={"train": train_path, "eval": eval_path})

    def conv(row):
        user = {"role": "user", "content": row["prompt"]}
        return {
            "chosen": [user, {"role": "assistant", "content": row["chosen"]}],
            "rejected": [user, {"role": "assistant", "content": row["rejected"]}],
        }

    ds = ds.map(conv, remove_columns=["prompt"])
    return ds["train"], ds["eval"]
