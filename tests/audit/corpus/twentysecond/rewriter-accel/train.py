from pathlib import Path

import torch
import typer
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_scheduler,
)

app = typer.Typer()


def encode(batch, tokenizer, max_len):
    out = {"input_ids": [], "attention_mask": [], "labels": []}
    for q, r in zip(batch["query"], batch["rewrite"]):
        prompt = tokenizer(f"Query: {q}\nRewrite:", add_special_tokens=False)["input_ids"]
        answer = tokenizer(f" {r}", add_special_tokens=False)["input_ids"]
        answer = answer + [tokenizer.eos_token_id]
        ids = (prompt + answer)[:max_len]
        labels = ([-100] * len(prompt) + answer)[:max_len]
        out["input_ids"].append(ids)
        out["attention_mask"].append([1] * len(ids))
        out["labels"].append(labels)
    return out


@app.command()
def main(
    model_name: str = "EleutherAI/pythia-1.4b",
    data: Path = Path("data/train.jsonl"),
    out: Path = Path("out"),
    epochs: int = 3,
    batch_size: int = 16,
    accum: int = 4,
    lr: float = 2e-5,
    max_len: int = 512,
    seed: int = 0,
):
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(gradient_accumulation_steps=accum, kwargs_handlers=[ddp])
    set_seed(seed)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(model_name, torch_dtype=torch.float32)

    ds = load_dataset("json", data_files=str(data), split="train")
    with accelerator.main_process_first():
        ds = ds.map(
            encode,
            batched=True,
            fn_kwargs={"tokenizer": tokenizer, "max_len": max_len},
            remove_columns=ds.column_names,
        )
    collator = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8)
    loader = DataLoader(
        ds,
        batch_size=batch_size,
        shuffle=True,
        collate_fn=collator,
        num_workers=2,
        pin_memory=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    total_steps = epochs * len(loader) // accum
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=50, num_training_steps=total_steps)
    scheduler = accelerator.prepare(scheduler)

    model.train()
    step = 0
    for epoch in range(epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            step += 1
            mean_loss = accelerator.gather(loss.detach()).mean().item()
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {mean_loss:.4f}")
        accelerator.save_state(out / f"epoch_{epoch}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        out / "final",
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(out / "final")


if __name__ == "__main__":
    app()
