import torch
from datasets import load_dataset

USER, ASSISTANT = "<|user|>\n", "<|assistant|>\n"


def to_text(messages, eos):
    parts = []
    for m in messages:
        if m["role"] == "assistant":
            parts.append(ASSISTANT + m["content"].strip() + eos + "\n")
        else:
            parts.append(USER + m["content"].strip() + "\n")
    return "".join(parts)


def encode(row, tokenizer, max_length):
    text = to_text(row["messages"], tokenizer.eos_token)
    enc = tokenizer(text, truncation=True, max_length=max_length, return_offsets_mapping=True)
    offsets = enc.pop("offset_mapping")
    labels = [-100] * len(enc["input_ids"])
    pos = text.find(ASSISTANT)
    if pos == -1:
        labels = list(enc["input_ids"])
    while pos != -1:
        begin = pos + len(ASSISTANT)
        end = text.find(tokenizer.eos_token, begin) + len(tokenizer.eos_token)
        for i, (a, b) in enumerate(offsets):
            if a >= begin and b <= end and b > a:
                labels[i] = enc["input_ids"][i]
        pos = text.find(ASSISTANT, end)
    enc["labels"] = labels
    return enc


def load_encoded(args, tokenizer):
    raw = load_dataset("json", data_files=args.train_file, split="train")
    return raw.map(
        encode,
        fn_kwargs={"tokenizer": tokenizer, "max_length": args.max_seq_length},
        num_proc=args.preprocessing_num_workers,
        remove_columns=raw.column_names,
    )


class Collator:
    def __init__(self, pad_id):
        self.pad_id = pad_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        fill = {"input_ids": self.pad_id, "attention_mask": 0, "labels": -100}
        return {
            k: torch.tensor([r[k] + [v] * (width - len(r[k])) for r in rows]) for k, v in fill.items()
        }
