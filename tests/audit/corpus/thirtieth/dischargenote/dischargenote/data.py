from datasets import load_dataset
from transformers import PreTrainedTokenizerBase

from . import MAX_LEN

PROMPT = "### Observations\n{notes}\n\n### Letter\n"


def load_split(path: str, tok: PreTrainedTokenizerBase, num_proc: int = 8):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(batch):
        texts = [
            PROMPT.format(notes=n) + letter + tok.eos_token
            for n, letter in zip(batch["notes"], batch["letter"])
        ]
        enc = tok(
            texts,
            truncation=True,
            max_length=MAX_LEN,
            padding="max_length",
        )
        enc["labels"] = [ids.copy() for ids in enc["input_ids"]]
        return enc

    return ds.map(encode, batched=True, num_proc=num_proc, remove_columns=ds.column_names)
