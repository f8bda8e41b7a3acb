"""Continued pre-training of an 8B on packed 16k blocks: FSDP2, one node of 8 H100, launched by `launch.sh`."""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from liger_kernel.transformers import AutoLigerKernelForCausalLM
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from data import Blocks, order_of

UNTIMED = 10  # steps before the clock counts: allocator, cuBLAS heuristics, Triton compilation


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B")
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--block", type=int, default=16384)
    p.add_argument("--accumulate", type=int, default=4, help="rows per rank and step")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--save-every", type=int, default=250)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def build(args: argparse.Namespace, mesh) -> torch.nn.Module:
    # fp32 on purpose: these are the sharded master weights. The policy below gathers them in bf16, so attention and
    # matrix products run in bf16. Read on the CPU (32 GB a rank, the node has 2 TB); fully_shard moves the shards.
    model = AutoLigerKernelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="flash_attention_2", use_cache=False
    )
    # 16k tokens in 32 layers do not fit otherwise.
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.train()
    return model


def parameter_groups(model: torch.nn.Module) -> list[dict]:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def save(folder: Path, model, optimizer, progress: dict, rank: int) -> None:
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder / "shards")
    if rank == 0:
        (folder / "progress.json").write_text(json.dumps(progress))
    dist.barrier()


def load_last(out: Path, model, optimizer) -> dict:
    done = sorted(out.glob("step*/progress.json"), key=lambda file: int(file.parent.name[4:]))
    if not done:
        return {"step": 0}
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=done[-1].parent / "shards")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    return json.loads(done[-1].read_text())


def main() -> None:
    args = arguments()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cuda", (world,))
    torch.manual_seed(args.seed)

    model = build(args, mesh)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=args.lr, betas=(0.9, 0.95), fused=True)

    rows = np.memmap(args.data / "tokens.u32", dtype=np.uint32, mode="r").size // args.block
    steps_per_epoch = rows // (world * args.accumulate)
    total = steps_per_epoch * args.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / args.warmup, max(0.0, (total - step) / max(total - args.warmup, 1)))
    )
    progress = load_last(args.out, model, optimizer)
    if "schedule" in progress:
        schedule.load_state_dict(progress["schedule"])
    step = progress["step"]

    timed_tokens, timed_seconds, since = 0, 0.0, None
    window = torch.zeros((), device="cuda")
    started_at = step
    while step < total:
        epoch, inside = divmod(step, steps_per_epoch)
        order = order_of(rows, args.seed, epoch, world, rank, args.accumulate, inside)
        loader = DataLoader(
            Blocks(args.data, args.block, order), batch_size=1, num_workers=4, pin_memory=True, prefetch_factor=4
        )
        batches = iter(loader)
        for _ in range(steps_per_epoch - inside):
            micro = [next(batches) for _ in range(args.accumulate)]
            # One normaliser for all ranks and micro-batches: every token weighs the same. Counted on the CPU through
            # gloo, so that the stream of the GPU is not waited for.
            targets = torch.tensor(sum(int((m["labels"][:, 1:] != -100).sum()) for m in micro))
            dist.all_reduce(targets)
            targets = int(targets)

            # Reduced with every micro-batch: accumulating unsharded gradients would save three reductions a step and
            # cost 32 GB a GPU.
            for batch in micro:
                batch = {key: value.to("cuda", non_blocking=True) for key, value in batch.items()}
                # no attention mask: flash attention takes the documents' bounds from the positions
                loss = model(**batch, num_items_in_batch=targets).loss
                # FSDP averages over ranks; the loss is already a share of the global mean
                (loss * world).backward()
                window += loss.detach()

            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1

            if step % args.log_every == 0:
                dist.all_reduce(window)
                mean = window.item() / args.log_every
                window.zero_()
                torch.cuda.synchronize()
                now = time.perf_counter()
                if since is not None and step - started_at > UNTIMED:
                    timed_seconds += now - since
                    timed_tokens += args.log_every * args.accumulate * args.block * world
                if rank == 0:
                    speed = timed_tokens / timed_seconds if timed_seconds else float("nan")
                    gradient = norm.full_tensor().item() if hasattr(norm, "full_tensor") else norm.item()
                    print(f"{step}/{total} loss {mean:.4f} |g| {gradient:.3f} {speed:,.0f} tokens/s", flush=True)
                elif hasattr(norm, "full_tensor"):
                    norm.full_tensor()  # a collective: all ranks take part
                since = time.perf_counter()

            if step % args.save_every == 0 or step == total:
                state = {"step": step, "schedule": schedule.state_dict()}
                save(args.out / f"step{step}", model, optimizer, state, rank)
                since = None

    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        model.save_pretrained(
            args.out / "final", state_dict={key: value.to(torch.bfloat16) for key, value in whole.items()}
        )
        AutoTokenizer.from_pretrained(args.model).save_pretrained(args.out / "final")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
