import argparse
import itertools
import os
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import TokenBudget, collate

BASE = "HuggingFaceTB/SmolLM2-360M"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--budget", type=int, default=16384)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--warmup", type=int, default=100)
    args = ap.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(99 + rank)
    torch.backends.cuda.matmul.allow_tf32 = True

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rows = torch.load(args.train, weights_only=True)
    batches = TokenBudget([len(r[0]) for r in rows], args.budget, rank, world, seed=99)
    loader = DataLoader(rows, batch_sampler=batches, collate_fn=partial(collate, pad=tokenizer.eos_token_id),
                        num_workers=2, pin_memory=True)

    model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.float32, attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    ddp = DDP(model, device_ids=[local], gradient_as_bucket_view=True, static_graph=False)
    ddp.train()
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / args.warmup))

    os.makedirs(args.out, exist_ok=True)
    state_path = os.path.join(args.out, "state.pt")
    first, step = 0, 0
    if os.path.exists(state_path):
        state = torch.load(state_path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first, step = state["epoch"] + 1, state["step"]

    logged = torch.zeros(2, device="cuda")
    for epoch in range(first, args.epochs):
        batches.set_epoch(epoch)
        stream = iter(loader)
        while group := list(itertools.islice(stream, args.accum)):
            tokens = torch.tensor(float(sum((b["labels"][:, 1:] != -100).sum() for b in group)), device="cuda")
            dist.all_reduce(tokens)
            for i, batch in enumerate(group):
                batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
                labels = batch.pop("labels")[:, 1:]
                with ddp.no_sync() if i + 1 < len(group) else nullcontext():
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        logits = ddp(**batch).logits[:, :-1]
                    loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
                    (loss * world / tokens).backward()
                logged[0] += loss.detach()
            logged[1] += tokens / world
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                dist.all_reduce(logged)
                if rank == 0:
                    print(f"epoch {epoch} step {step} loss {(logged[0] / logged[1]).item():.4f}", flush=True)
                logged.zero_()
        if rank == 0:
            model.save_pretrained(args.out, safe_serialization=True)
            tokenizer.save_pretrained(args.out)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                     "scheduler": scheduler.state_dict(), "epoch": epoch, "step": step}
            torch.save(state, state_path + ".tmp")
            os.replace(state_path + ".tmp", state_path)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
