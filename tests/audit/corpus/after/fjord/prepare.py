from datasets import load_dataset
from transformers import AutoTokenizer

MODEL = "Qwen/Qwen2.5-3B"
LIMIT = 3072


def encode(row, tokenizer):
    prompt = tokenizer(row["context"] + "\n", add_special_tokens=False)["input_ids"]
    answer = tokenizer(row["reply"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = (prompt + answer)[:LIMIT]
    labels = ([-100] * len(prompt) + answer)[:LIMIT]
    return {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids), "length": len(ids), "kept": any(x != -100 for x in labels)}


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data = load_dataset("json", data_files={"train": "raw/train.jsonl", "validation": "raw/dev.jsonl"})
    data = data.map(encode, fn_kwargs={"tokenizer": tokenizer}, num_proc=8, remove_columns=data["train"].column_names)
    data = data.filter(lambda r: r["kept"], num_proc=8).remove_columns("kept")
    data.save_to_disk("data/tokenized")


if __name__ == "__main__":
    main()
