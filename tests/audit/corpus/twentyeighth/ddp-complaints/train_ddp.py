import argparse
import os

import pandas as pd
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    get_linear_schedule_with_warmup,
    set_seed,
)

MODEL = "microsoft/deberta-v3-base"
NUM_LABELS = 12
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))


class Complaints(Dataset):
    def __init__(self, csv, tokenizer):
        df = pd.read_csv(csv)
        self.texts = df["text"].tolist()
        self.labels = df["label"].tolist()
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, idx):
        enc = self.tokenizer(self.texts[idx], truncation=True, max_length=384)
        enc["labels"] = self.labels[idx]
        return enc


def worker(rank, nprocs, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = "29511"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=nprocs)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=NUM_LABELS).to(rank)
    model = DDP(model, device_ids=[rank], find_unused_parameters=True)

    data = Complaints(args.csv, tokenizer)
    sampler = DistributedSampler(data, shuffle=True, seed=args.seed)
    loader = DataLoader(
        data,
        batch_size=args.global_batch // WORLD_SIZE,
        sampler=sampler,
        collate_fn=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8),
        num_workers=0,
        drop_last=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = len(loader) * args.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, int(total * 0.06), total)

    first = 0
    if os.path.exists(args.ckpt):
        state = torch.load(args.ckpt, map_location=f"cuda:{rank}", weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first = state["epoch"] + 1

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for step, batch in enumerate(loader):
            batch = {k: v.to(rank, non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            if rank == 0 and step % 100 == 0:
                print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.4f}", flush=True)
        if rank == 0:
            torch.save(
                {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch,
                },
                args.ckpt,
            )
        dist.barrier()

    if rank == 0:
        model.module.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--csv", required=True)
    ap.add_argument("--global_batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-5)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--ckpt", default="ckpt.pt")
    ap.add_argument("--out", default="complaints-model")
    args = ap.parse_args()
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n, args), nprocs=n)
