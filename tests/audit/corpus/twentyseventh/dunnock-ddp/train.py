import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2Config, GPT2LMHeadModel

CFG = json.load(open(os.environ.get("DUNNOCK_CONFIG", "config.json")))


def batch(tokens, rng, n, ctx, device):
    # tokens lie in a memmap: slicing is cheap, no loader needed
    at = rng.integers(0, len(tokens) - ctx - 1, size=n)
    x = torch.from_numpy(np.stack([tokens[i : i + ctx + 1] for i in at]).astype(np.int64))
    return x.pin_memory().to(device, non_blocking=True)


def lr_at(step):
    warm, total, top = CFG["warmup"], CFG["steps"], CFG["lr"]
    if step < warm:
        return top * (step + 1) / warm
    return top * (0.1 + 0.45 * (1 + np.cos(np.pi * (step - warm) / (total - warm))))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(CFG["seed"] + rank)
    torch.set_float32_matmul_precision("high")

    per_step = CFG["micro_batch"] * world
    assert CFG["global_batch"] % per_step == 0
    accum = CFG["global_batch"] // per_step

    gpt = GPT2LMHeadModel(GPT2Config(n_positions=CFG["ctx"], use_cache=False, attn_implementation="sdpa")).to(device)
    opt = torch.optim.AdamW(gpt.parameters(), lr=CFG["lr"], betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    start, ckpt = 0, os.path.join(CFG["out"], "last.pt")
    if os.path.exists(ckpt):
        state = torch.load(ckpt, map_location=device, weights_only=True)
        gpt.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        start = state["step"]
    model = DDP(torch.compile(gpt), device_ids=[local], gradient_as_bucket_view=True)
    tokens = np.memmap(CFG["tokens"], dtype=np.uint16, mode="r")

    model.train()
    shown, mark = start, None
    for step in range(start, CFG["steps"]):
        rng = np.random.default_rng((CFG["seed"], rank, step))
        for group in opt.param_groups:
            group["lr"] = float(lr_at(step))
        for k in range(accum):
            ids = batch(tokens, rng, CFG["micro_batch"], CFG["ctx"], device)
            model.require_backward_grad_sync = k == accum - 1
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(input_ids=ids[:, :-1]).logits
                loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / accum
            loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

        if (step + 1) % CFG["log_every"] == 0:
            value = loss.item() * accum
            now = time.perf_counter()
            if rank == 0 and mark is not None:
                rate = (step + 1 - shown) * CFG["global_batch"] * CFG["ctx"] / (now - mark)
                print(f"{step + 1} loss {value:.4f} tok/s {rate:,.0f}", flush=True)
            shown, mark = step + 1, now
        if (step + 1) % CFG["save_every"] == 0:
            if rank == 0:
                os.makedirs(CFG["out"], exist_ok=True)
                torch.save({"model": gpt.state_dict(), "opt": opt.state_dict(), "step": step + 1}, ckpt + ".tmp")
                os.replace(ckpt + ".tmp", ckpt)
            dist.barrier()
            torch.cuda.synchronize()
            shown, mark = step + 1, time.perf_counter()

    if rank == 0:
        os.makedirs(CFG["out"], exist_ok=True)
        weights = {k: v.contiguous() for k, v in gpt.state_dict().items() if k != "lm_head.weight"}
        save_file(weights, os.path.join(CFG["out"], "model.safetensors"), metadata={"format": "pt"})
        gpt.config.save_pretrained(CFG["out"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
