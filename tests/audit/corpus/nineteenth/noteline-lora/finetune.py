import math

import click
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_linear_schedule_with_warmup,
)

MODEL = "meta-llama/Llama-3.1-8B"


def encode(tok, max_len):
    def fn(row):
        prompt = tok(row["prompt"] + "\n\n")["input_ids"]
        answer = tok(row["completion"] + tok.eos_token, add_special_tokens=False)["input_ids"]
        ids = (prompt + answer)[:max_len]
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "labels": ([-100] * len(prompt) + answer)[:max_len],
        }

    return fn


@click.command()
@click.option("--data", required=True)
@click.option("--out", required=True)
@click.option("--batch-size", default=4)
@click.option("--accum", default=4)
@click.option("--epochs", default=2)
@click.option("--lr", default=1e-4)
@click.option("--max-len", default=2048)
@click.option("--seed", default=7)
def main(data, out, batch_size, accum, epochs, lr, max_len, seed):
    set_seed(seed)
    accelerator = Accelerator(gradient_accumulation_steps=accum)

    tok = AutoTokenizer.from_pretrained(MODEL)
    tok.pad_token = "<|finetune_right_pad_id|>"
    with accelerator.main_process_first():
        rows = load_dataset("json", data_files=data, split="train")
        rows = rows.map(encode(tok, max_len), remove_columns=rows.column_names)

    loader = DataLoader(
        rows,
        batch_size=batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
        num_workers=0,
        prefetch_factor=4,
        pin_memory=True,
    )

    model = AutoModelForCausalLM.from_pretrained(MODEL)
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    model.gradient_checkpointing_enable()

    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr, fused=True)
    steps = epochs * math.ceil(len(loader) / accum)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.03 * steps), steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    model.train()
    for epoch in range(epochs):
        for i, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            value = accelerator.gather(loss.detach()).mean().item()
            if i % 40 == 0:
                accelerator.print(f"epoch {epoch} batch {i} loss {value:.4f}")
        accelerator.save_state(f"{out}/epoch{epoch}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(f"{out}/adapter")
        tok.save_pretrained(f"{out}/adapter")


if __name__ == "__main__":
    main()
