from datasets import load_dataset
from transformers import default_data_collator

PROMPT = "### Instruction:\n{instruction}\n\n### Response:\n"
MAX_LEN = 2048


def build(tokenizer, path):
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    def encode(batch):
        texts = [
            PROMPT.format(instruction=i) + o + tokenizer.eos_token
            for i, o in zip(batch["instruction"], batch["output"])
        ]
        enc = tokenizer(texts, max_length=MAX_LEN, truncation=True, padding="max_length")
        enc["labels"] = [ids[:] for ids in enc["input_ids"]]
        return enc

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(encode, batched=True, num_proc=8, remove_columns=ds.column_names), default_data_collator
