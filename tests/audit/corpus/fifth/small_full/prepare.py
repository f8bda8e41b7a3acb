import argparse

from datasets import load_dataset
from transformers import AutoTokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--src")
    p.add_argument("--dst")
    p.add_argument("--model", default="Qwen/Qwen2.5-0.5B")
    a = p.parse_args()
    tok = AutoTokenizer.from_pretrained(a.model)

    def enc(r):
        x = tok(f"Call:\n{r['transcript']}\nIntent:")["input_ids"]
        y = tok(" " + r["intent"])["input_ids"] + [tok.eos_token_id]
        if len(x) + len(y) > 512:
            x = x[-(512 - len(y)) :]
        return {"input_ids": x + y, "labels": [-100] * len(x) + y, "attention_mask": [1] * (len(x) + len(y))}

    ds = load_dataset("json", data_files=a.src, split="train")
    ds.map(enc, num_proc=32, remove_columns=ds.column_names).save_to_disk(a.dst)


if __name__ == "__main__":
    main()
