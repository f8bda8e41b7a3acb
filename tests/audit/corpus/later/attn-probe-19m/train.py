"""Train the 19M probe model whose attention maps chapter 4 of the thesis analyses.

Everything here is small enough that the usual large-model tricks would only get in the way; where the script departs
from them it says why.
"""

import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20240611
CONTEXT = 256
BATCH = 128
STEPS = 12_000
WARMUP = 400
PEAK_LR = 1e-3
OUT = Path("runs/probe-19m")


def learning_rate(step: int) -> float:
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return PEAK_LR * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def crops(tokens: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    starts = torch.randint(len(tokens) - CONTEXT, (BATCH, 1), generator=generator, device=tokens.device)
    return tokens[starts + torch.arange(CONTEXT, device=tokens.device)].long()


@torch.no_grad()
def validate(model: LlamaForCausalLM, tokens: torch.Tensor) -> float:
    model.eval()
    rows = tokens[: len(tokens) // CONTEXT * CONTEXT].view(-1, CONTEXT).long()
    total = torch.zeros((), device=tokens.device)
    for chunk in rows.split(BATCH):
        total += model(input_ids=chunk, labels=chunk).loss * len(chunk)
    model.train()
    return (total / len(rows)).item()


def main() -> None:
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    # fp32 throughout and TF32 off on purpose: the analysis compares attention weights between seeds down to 1e-6,
    # and at 19M parameters the run takes 50 minutes anyway.
    torch.set_float32_matmul_precision("highest")

    device = torch.device("cuda")
    tokenizer = PreTrainedTokenizerFast.from_pretrained("tokenizer-8k")
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=384,
            intermediate_size=1216,
            num_hidden_layers=8,
            num_attention_heads=6,
            num_key_value_heads=6,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            use_cache=False,
            # the hooks of probe.py read the softmax output, which SDPA and flash attention never materialise
            attn_implementation="eager",
        )
    ).to(device)

    # The corpus is 400 MB as uint16: it lives on the GPU, so there is no DataLoader to feed.
    train = torch.from_numpy(np.fromfile("data/train.u16", dtype=np.uint16).astype(np.int32)).to(device)
    held_out = torch.from_numpy(np.fromfile("data/val.u16", dtype=np.uint16).astype(np.int32)).to(device)
    draws = torch.Generator(device=device).manual_seed(SEED)

    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    model.train()
    losses = torch.zeros(200, device=device)
    torch.cuda.synchronize()
    since = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        batch = crops(train, draws)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        # losses stay on the device; one transfer per 200 steps
        losses[step % 200] = loss.detach()
        if (step + 1) % 200 == 0:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - since
            speed = 200 * BATCH * CONTEXT / seconds
            print(f"{step + 1:6d}  loss {losses.mean().item():.4f}  {speed:,.0f} tokens/s", flush=True)
            if (step + 1) % 2000 == 0:
                print(f"{step + 1:6d}  validation {validate(model, held_out):.4f}", flush=True)
            torch.cuda.synchronize()
            since = time.perf_counter()

    # No checkpoints in between and no resume: a lost run costs less than an hour.
    model.save_pretrained(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
