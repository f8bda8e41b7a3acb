from itertools import chain

from datasets import load_dataset


def load_blocks(tok, cfg):
    """Tokenise, join the documents with EOS and cut into equal blocks."""
    raw = load_dataset("json", data_files={"train": cfg.train_file, "eval": cfg.eval_file})

    def encode(batch):
        enc = tok(batch["text"], return_attention_mask=False)
        return {"input_ids": [ids + [tok.eos_token_id] for ids in enc["input_ids"]]}

    def group(batch):
        flat = list(chain.from_iterable(batch["input_ids"]))
        n = len(flat) // cfg.block_size * cfg.block_size
        rows = [flat[i : i + cfg.block_size] for i in range(0, n, cfg.block_size)]
        return {"input_ids": rows, "labels": [list(r) for r in rows]}

    ds = raw.map(encode, batched=True, num_proc=cfg.num_proc, remove_columns=raw["train"].column_names)
    return ds.map(group, batched=True, num_proc=cfg.num_proc)
