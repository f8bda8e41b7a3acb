from datasets import load_dataset


def load(path, tokenizer, max_len):
    def encode(row):
        prompt = tokenizer(row["prompt"] + "\n\n").input_ids
        answer = tokenizer(row["completion"]).input_ids + [tokenizer.eos_token_id]
        ids = (prompt + answer)[:max_len]
        labels = ([-100] * len(prompt) + answer)[:max_len]
        pad = max_len - len(ids)
        return {
            "input_ids": ids + [tokenizer.pad_token_id] * pad,
            "attention_mask": [1] * len(ids) + [0] * pad,
            "labels": labels + [-100] * pad,
        }

    rows = load_dataset("json", data_files=path, split="train")
    return rows.map(encode, remove_columns=rows.column_names, num_proc=2)
