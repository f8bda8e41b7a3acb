import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup, set_seed

from data import LABELS, Collator, Comments


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="microsoft/deberta-v3-base")
    p.add_argument("--train", required=True)
    p.add_argument("--valid", required=True)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--output", default="runs/mod")
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros(2, device=device)
    for batch in loader:
        batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(**batch).logits
        hits[0] += (logits.argmax(-1) == batch["labels"]).sum()
        hits[1] += batch["labels"].numel()
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    args = parse_args()
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    world_size = dist.get_world_size()
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=len(LABELS)).to(device)
    model = DDP(model, device_ids=[local_rank])

    train_set, valid_set = Comments(args.train), Comments(args.valid)
    collate = Collator(tokenizer)
    train_sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    train_loader = DataLoader(
        train_set, args.batch_size, sampler=train_sampler, collate_fn=collate, num_workers=4, pin_memory=True, drop_last=True
    )
    valid_loader = DataLoader(
        valid_set, 64, sampler=DistributedSampler(valid_set, shuffle=False), collate_fn=collate, num_workers=2, pin_memory=True
    )
    total = args.epochs * len(train_loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.06 * total), total)

    best, step, running = 0.0, 0, 0.0
    for epoch in range(args.epochs):
        for batch in train_loader:
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss / world_size
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            running += loss.item()
            step += 1
            if step % 50 == 0 and rank == 0:
                print(f"epoch {epoch} step {step}/{total} loss {running / 50:.4f}", flush=True)
            if step % 50 == 0:
                running = 0.0
        accuracy = evaluate(model, valid_loader, device)
        if rank == 0:
            print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)
            if accuracy > best:
                best = accuracy
                model.module.save_pretrained(args.output)
                tokenizer.save_pretrained(args.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
