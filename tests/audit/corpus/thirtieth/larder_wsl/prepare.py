import itertools

from datasets import load_dataset
from transformers import AutoTokenizer

BLOCK = 512
tok = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM2-360M")


def join(batch):
    ids = [x + [tok.eos_token_id] for x in tok(batch["text"])["input_ids"]]
    flat = list(itertools.chain.from_iterable(ids))
    n = len(flat) // BLOCK * BLOCK
    blocks = [flat[i : i + BLOCK] for i in range(0, n, BLOCK)]
    return {"input_ids": blocks, "labels": [b.copy() for b in blocks]}


raw = load_dataset("json", data_files="recipes.jsonl", split="train")
raw = raw.train_test_split(test_size=0.02, seed=3)
blocks = raw.map(join, batched=True, batch_size=2000, remove_columns=raw["train"].column_names)
blocks.save_to_disk("blocks")
print({k: len(v) for k, v in blocks.items()}, "blocks of", BLOCK)
