import argparse
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from blocks import blocks

PEAK = {"H100": 1979e12, "A100": 312e12}


def peak_of(name):
    for key, flops in PEAK.items():
        if key in name:
            return flops
    raise SystemExit(f"no peak known for {name}")


def flops_per_token(model, seq):
    cfg = model.config
    params = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    if cfg.tie_word_embeddings:
        params += cfg.vocab_size * cfg.hidden_size
    attention = 6 * cfg.num_hidden_layers * cfg.hidden_size * seq
    return 6 * params + attention


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--data", default="data/queries.jsonl")
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--seq", type=int, default=4096)
    ap.add_argument("--batch", type=int, default=2)
    ap.add_argument("--compile", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    name = torch.cuda.get_device_name(0)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    ids = blocks(args.data, tokenizer, args.seq, args.steps * args.batch).pin_memory()

    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        torch_dtype=torch.bfloat16,
        attn_implementation="eager",
    ).cuda()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    cost = flops_per_token(model, args.seq)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    step_model = torch.compile(model) if args.compile else model

    times = []
    for i in range(args.steps):
        batch = ids[i * args.batch : (i + 1) * args.batch].cuda(non_blocking=True)
        start = time.perf_counter()
        loss = step_model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)

    tokens = args.batch * args.seq
    best = tokens / min(times)
    mean = tokens * len(times) / sum(times)
    print(f"{name}: {best:,.0f} tokens/s (mean {mean:,.0f})")
    print(f"MFU {100 * best * cost / peak_of(name):.1f} %")
    print(f"memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
