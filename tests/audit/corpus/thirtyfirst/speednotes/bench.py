import argparse
import json
import time

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, set_seed


def arguments():
    ap = argparse.ArgumentParser(description="Time fine-tuning steps of a small model.")
    ap.add_argument("--model", default="Qwen/Qwen2-0.5B")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--max-len", type=int, default=512)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    ap.add_argument("--compile", action="store_true")
    ap.add_argument("--log", default="results.jsonl")
    return ap.parse_args()


def main():
    a = arguments()
    set_seed(0)
    tok = AutoTokenizer.from_pretrained(a.model)
    rows = load_dataset("json", data_files="notes.jsonl", split="train")
    rows = rows.map(lambda r: tok(r["text"], truncation=True, max_length=a.max_len), remove_columns=["text"])
    loader = DataLoader(rows, batch_size=a.batch, shuffle=True, drop_last=True, num_workers=2, pin_memory=True,
                        collate_fn=DataCollatorForLanguageModeling(tok, mlm=False))

    model = AutoModelForCausalLM.from_pretrained(a.model, attn_implementation="sdpa").cuda()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    step_model = torch.compile(model) if a.compile else model
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    done = 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    while done < a.steps:
        for batch in loader:
            batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
                loss = step_model(**batch).loss
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            done += 1
            if done == a.steps:
                break
    torch.cuda.synchronize()
    secs = time.perf_counter() - start
    record = {
        "batch": a.batch,
        "compile": a.compile,
        "it_per_s": round(done / secs, 2),
        "tokens_per_s": round(done * a.batch * a.max_len / secs),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 2**30, 1),
    }
    print(record)
    with open(a.log, "a") as f:
        f.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
