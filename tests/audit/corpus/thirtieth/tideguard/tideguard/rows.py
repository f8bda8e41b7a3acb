from datasets import load_dataset

from . import LABELS

ASK = "Classify the message as one of: " + ", ".join(LABELS) + ".\n\n{text}"


def build(folder, tok, num_proc):
    """`train.csv` and `dev.csv` come from different months, so no transcript is in both."""
    ds = load_dataset("csv", data_files={s: f"{folder}/{s}.csv" for s in ("train", "dev")})

    def encode(row):
        ask = [{"role": "user", "content": ASK.format(text=row["text"])}]
        prompt = tok.apply_chat_template(ask, tokenize=False, add_generation_prompt=True)
        p = tok(prompt, add_special_tokens=False)["input_ids"]
        a = tok(row["label"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
        return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}

    return ds.map(encode, num_proc=num_proc, remove_columns=ds["train"].column_names)
