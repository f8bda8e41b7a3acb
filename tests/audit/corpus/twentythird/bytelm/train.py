"""Byte-level language model on one GPU. The whole corpus sits on the GPU as one uint8 tensor."""
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import HfArgumentParser

from net import ByteLM


@dataclass
class Args:
    corpus: str = "data/corpus.txt"
    out: str = "runs/byte"
    context: int = 1024
    batch: int = 32
    steps: int = 20_000
    warmup: int = 500
    lr: float = 6e-4
    log_every: int = 100
    save_every: int = 2_000
    seed: int = 3


def sample(data, args, gen):
    # no DataLoader: the corpus is on the device already, so are the offsets
    at = torch.randint(data.numel() - args.context, (args.batch, 1), device=data.device, generator=gen)
    rows = data[at + torch.arange(args.context + 1, device=data.device)].long()
    return rows[:, :-1], rows[:, 1:]


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(args.out, exist_ok=True)

    with open(args.corpus, "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).cuda()

    net = ByteLM(width=512, depth=8, heads=8, context=args.context).cuda()
    run = torch.compile(net)
    decay = [p for p in net.parameters() if p.ndim >= 2]
    plain = [p for p in net.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), fused=True,
    )
    sched = torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.01, 1.0, args.warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps - args.warmup, args.lr / 10),
        ],
        [args.warmup],
    )
    gen = torch.Generator(device="cuda").manual_seed(args.seed)

    first, path = 0, f"{args.out}/state.pt"
    if os.path.exists(path):
        ck = torch.load(path, map_location="cpu", weights_only=True)
        net.load_state_dict(ck["net"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        gen.set_state(ck["gen"])
        first = ck["step"]

    total = torch.zeros((), device="cuda")
    for step in range(first + 1, args.steps + 1):
        x, y = sample(data, args, gen)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = run(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)

        total += loss.detach()
        if step % args.log_every == 0:
            print(f"step {step} loss {total.item() / args.log_every:.4f}", flush=True)
            total.zero_()
        if step % args.save_every == 0:
            torch.save(
                {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "gen": gen.get_state(), "step": step},
                path + ".tmp",
            )
            os.replace(path + ".tmp", path)

    save_file(net.state_dict(), f"{args.out}/model.safetensors")


if __name__ == "__main__":
    main()
