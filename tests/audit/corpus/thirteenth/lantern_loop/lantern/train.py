import contextlib
import os
import time
from itertools import islice

import click
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from lantern.data import Collate, build

WARMUP_UPDATES = 20


@click.command()
@click.option("--data", required=True)
@click.option("--out", required=True)
@click.option("--model-name", default="HuggingFaceTB/SmolLM2-360M")
@click.option("--max-length", default=1024)
@click.option("--micro-batch", default=8)
@click.option("--global-batch", default=128)
@click.option("--epochs", default=2)
@click.option("--lr", default=2e-5)
@click.option("--log-every", default=20)
@click.option("--seed", default=5)
def main(data, out, model_name, max_length, micro_batch, global_batch, epochs, lr, log_every, seed):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)

    if global_batch % (micro_batch * world):
        raise click.UsageError("--global-batch must be a multiple of micro batch x GPUs")
    accum = global_batch // (micro_batch * world)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    rows = build(data, tokenizer, max_length)
    sampler = DistributedSampler(rows, shuffle=True, seed=seed, drop_last=True)
    loader = DataLoader(
        rows,
        batch_size=micro_batch,
        sampler=sampler,
        drop_last=True,
        num_workers=4,
        persistent_workers=True,
        pin_memory=True,
        collate_fn=Collate(tokenizer.eos_token_id),
    )

    raw = AutoModelForCausalLM.from_pretrained(model_name, torch_dtype=torch.float32, attn_implementation="sdpa").cuda()
    raw.config.use_cache = False
    model = DDP(raw, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(raw.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    updates = len(loader) // accum
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * updates * epochs), updates * epochs)

    state_file, first_epoch = os.path.join(out, "state.pt"), 0
    if os.path.exists(state_file):
        state = torch.load(state_file, map_location="cpu", weights_only=True)
        raw.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first_epoch = state["epoch"] + 1

    model.train()
    done, start = 0, None
    real_tokens = torch.zeros((), dtype=torch.long, device="cuda")
    for epoch in range(first_epoch, epochs):
        sampler.set_epoch(epoch)
        stream = iter(loader)
        for _ in range(updates):
            micro = [{k: v.cuda(non_blocking=True) for k, v in b.items()} for b in islice(stream, accum)]
            n_targets = sum((b["labels"][:, 1:] != -100).sum() for b in micro)
            dist.all_reduce(n_targets)
            loss_sum = torch.zeros((), device="cuda")
            for i, b in enumerate(micro):
                with contextlib.nullcontext() if i == accum - 1 else model.no_sync():
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        logits = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
                    loss = F.cross_entropy(
                        logits[:, :-1].float().flatten(0, 1), b["labels"][:, 1:].flatten(), reduction="sum"
                    )
                    # DDP averages over ranks, hence the factor
                    (loss * world / n_targets).backward()
                loss_sum += loss.detach()
                real_tokens += b["attention_mask"].sum()
            torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)

            done += 1
            if done == WARMUP_UPDATES:
                torch.cuda.synchronize()
                real_tokens.zero_()
                start = time.perf_counter()
            if done % log_every == 0 and done > WARMUP_UPDATES:
                total, shown = real_tokens.clone(), loss_sum / n_targets
                dist.all_reduce(total)
                dist.all_reduce(shown)
                torch.cuda.synchronize()
                rate = total.item() / (time.perf_counter() - start)
                if rank == 0:
                    print(f"epoch {epoch} update {done} loss {shown.item():.4f} {rate:.0f} tokens/s", flush=True)

        if rank == 0:
            os.makedirs(out, exist_ok=True)
            torch.save(
                {
                    "model": raw.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch,
                },
                state_file,
            )
        dist.barrier()

    if rank == 0:
        raw.save_pretrained(out, safe_serialization=True)
        tokenizer.save_pretrained(out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
