"""Tokenise once: python prepare.py  ->  cache/tokens (read by train.py)"""
from datasets import load_dataset
from transformers import AutoTokenizer

MODEL = "Qwen/Qwen2.5-0.5B"
MAX_LEN = 1024


def main():
    tok = AutoTokenizer.from_pretrained(MODEL)

    def encode(row):
        q = tok(f"Question: {row['question']}\nAnswer:")["input_ids"]
        a = tok(f" {row['answer']}")["input_ids"] + [tok.eos_token_id]
        ids = q + a
        labels = [-100] * len(q) + a
        return {"input_ids": ids, "labels": labels, "length": len(ids)}

    ds = load_dataset("json", data_files="data/qa.jsonl", split="train")
    ds = ds.map(encode, num_proc=8, remove_columns=ds.column_names)
    ds = ds.filter(lambda n: n <= MAX_LEN, input_columns="length")
    ds.save_to_disk("cache/tokens")


if __name__ == "__main__":
    main()
