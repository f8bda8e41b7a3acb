from itertools import chain

from datasets import load_dataset


def build_blocks(cfg, tokenizer):
    raw = load_dataset("parquet", data_files=cfg.path, split="train")
    column, size = cfg.text_column, cfg.block_size

    def encode(batch):
        ids = tokenizer(batch[column], add_special_tokens=False)["input_ids"]
        return {"input_ids": [x + [tokenizer.eos_token_id] for x in ids]}

    def chunk(batch):
        flat = list(chain.from_iterable(batch["input_ids"]))
        n = len(flat) // size * size
        rows = [flat[i : i + size] for i in range(0, n, size)]
        return {"input_ids": rows, "labels": [list(r) for r in rows]}

    tokens = raw.map(encode, batched=True, num_proc=cfg.num_proc, remove_columns=raw.column_names)
    return tokens.map(chunk, batched=True, num_proc=cfg.num_proc)
