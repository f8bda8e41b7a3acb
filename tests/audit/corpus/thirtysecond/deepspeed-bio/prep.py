"""Tokenise the case reports once; finetune.py only reads the result."""
from datasets import load_dataset
from transformers import AutoTokenizer

from args import get_parser

a = get_parser().parse_args()
tok = AutoTokenizer.from_pretrained(a.model)

ds = load_dataset("json", data_files=a.corpus, split="train")


def encode(batch):
    texts = [f"{t}\n\n{b}{tok.eos_token}" for t, b in zip(batch["title"], batch["body"])]
    return tok(texts, truncation=True, max_length=a.max_len)


ds = ds.train_test_split(test_size=0.03, seed=a.seed)
ds = ds.map(encode, batched=True, num_proc=8, remove_columns=ds["train"].column_names)
ds.save_to_disk(a.cache)
print(ds)
