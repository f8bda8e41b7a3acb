from itertools import chain

from datasets import load_dataset


def build(tok, files, block, workers):
    raw = load_dataset("json", data_files=files, split="train")

    def encode(batch):
        return {"input_ids": tok(batch["text"], add_special_tokens=False)["input_ids"]}

    def chunk(batch):
        ids = list(chain.from_iterable(batch["input_ids"]))
        end = (len(ids) // block) * block
        rows = [ids[i : i + block] for i in range(0, end, block)]
        return {"input_ids": rows, "labels": [list(r) for r in rows]}

    ids = raw.map(
        encode,
        batched=True,
        num_proc=workers,
        remove_columns=raw.column_names,
        load_from_cache_file=False,
    )
    return ids.map(chunk, batched=True, num_proc=workers, remove_columns=["input_ids"])
