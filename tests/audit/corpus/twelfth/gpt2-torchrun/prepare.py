import numpy as np
from datasets import load_dataset
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("openai-community/gpt2")
data = load_dataset("json", data_files="data/corpus.jsonl", split="train")
data = data.map(
    lambda b: {"ids": [x + [tokenizer.eos_token_id] for x in tokenizer(b["text"])["input_ids"]]},
    batched=True,
    num_proc=8,
    remove_columns=data.column_names,
)
with open("data/train.bin", "wb") as f:
    for row in data:
        np.asarray(row["ids"], dtype=np.uint16).tofile(f)
