import torch
from datasets import load_dataset
from torch.utils.data import DataLoader, DistributedSampler


def loader(tok, batch_size: int, seq_len: int, rank: int, world: int):
    ds = load_dataset("json", data_files="data/patterns.jsonl", split="train")
    ds = ds.map(
        lambda r: {"ids": [x + [tok.eos_token_id] for x in
                           tok(r["text"], truncation=True, max_length=seq_len - 1)["input_ids"]]},
        batched=True, remove_columns=ds.column_names,
    )

    def collate(rows):
        n = max(len(r["ids"]) for r in rows)
        ids = torch.full((len(rows), n), tok.pad_token_id)
        att = torch.zeros((len(rows), n), dtype=torch.long)
        for i, r in enumerate(rows):
            ids[i, : len(r["ids"])] = torch.tensor(r["ids"])
            att[i, : len(r["ids"])] = 1
        return {"input_ids": ids, "attention_mask": att,
                "labels": ids.masked_fill(att == 0, -100)}

    sampler = DistributedSampler(ds, world, rank, shuffle=True, seed=5)
    return DataLoader(ds, batch_size, sampler=sampler, collate_fn=collate,
                      num_workers=2, pin_memory=True, drop_last=True)
