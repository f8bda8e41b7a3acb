from itertools import chain

from datasets import load_dataset


def packed(path, tok, block):
    raw = load_dataset("json", data_files=path, split="train")
    ids = raw.map(
        lambda rows: {"input_ids": tok(rows["text"])["input_ids"]},
        batched=True,
        remove_columns=raw.column_names,
    )

    def group(rows):
        flat = list(chain.from_iterable(rows["input_ids"]))
        n = len(flat) // block * block
        blocks = [flat[i : i + block] for i in range(0, n, block)]
        return {"input_ids": blocks, "labels": [list(b) for b in blocks]}

    return ids.map(group, batched=True, batch_size=None)
