import math
import os
import time

import click
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = dict(
    vocab_size=2048,
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=8,
    max_position_embeddings=1024,
    tie_word_embeddings=True,
    use_cache=False,
    bos_token_id=None,
    eos_token_id=0,
    attn_implementation="sdpa",
)
LOG_EVERY = 100
SAVE_EVERY = 2000


def batches(tokens, size, ctx, gen):
    """Random windows, drawn on the GPU from tokens that already live there."""
    span = torch.arange(ctx, device=tokens.device)
    while True:
        start = torch.randint(tokens.numel() - ctx, (size, 1), device=tokens.device, generator=gen)
        yield tokens[start + span].long()


def schedule(step, peak, warmup, total):
    if step < warmup:
        return peak * (step + 1) / warmup
    return 0.5 * peak * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


@click.command()
@click.option("--tokens", "path", default="music.bin", help="uint16 token ids, songs end with id 0")
@click.option("--out", default="out")
@click.option("--steps", default=40_000)
@click.option("--batch", default=64)
@click.option("--ctx", default=1024)
@click.option("--lr", default=6e-4)
def main(path, out, steps, batch, ctx, lr):
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(99)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    tokens = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int16)).to(dev)

    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to(dev)
    opt = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    gen = torch.Generator(device=dev).manual_seed(99)

    first, state = 0, os.path.join(out, "state.pt")
    if os.path.exists(state):
        ck = torch.load(state, map_location="cpu", weights_only=True)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        gen.set_state(ck["gen"])
        first = ck["step"]

    fast = torch.compile(model)
    total_loss = torch.zeros((), device=dev)
    t0, seen = None, 0
    for step, ids in zip(range(first, steps), batches(tokens, batch, ctx, gen)):
        for g in opt.param_groups:
            g["lr"] = schedule(step, lr, 1000, steps)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = fast(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        total_loss += loss.detach()
        seen += ids.numel()

        if (step + 1) % LOG_EVERY == 0:
            mean = total_loss.item() / LOG_EVERY
            now = time.perf_counter()
            if t0 is not None:
                print(f"{step + 1} loss {mean:.4f} {seen / (now - t0):.0f} tok/s", flush=True)
            else:
                print(f"{step + 1} loss {mean:.4f} (compiling, not timed)", flush=True)
            total_loss.zero_()
            t0, seen = time.perf_counter(), 0

        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            torch.save(
                {"model": model.state_dict(), "opt": opt.state_dict(), "gen": gen.get_state(), "step": step + 1},
                state + ".tmp",
            )
            os.replace(state + ".tmp", state)
            t0, seen = time.perf_counter(), 0

    model.save_pretrained(os.path.join(out, "model"))


if __name__ == "__main__":
    main()
