import math
import os

import torch
import typer
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from collate import Collator
from settings import Settings

app = typer.Typer()


@app.command()
def train(
    data: str = "data/train.jsonl",
    output: str = "out",
    epochs: int = 2,
    lr: float = 2e-4,
    mixed_precision: str = "no",
    resume_from: str = "",
):
    s = Settings()
    accelerator = Accelerator(
        gradient_accumulation_steps=s.accum,
        mixed_precision=mixed_precision,
        log_with="tensorboard",
        project_dir=output,
    )
    set_seed(s.seed)
    accelerator.init_trackers("lora")

    tokenizer = AutoTokenizer.from_pretrained(s.model)
    model = AutoModelForCausalLM.from_pretrained(s.model)
    model.config.use_cache = False
    model = get_peft_model(
        model,
        LoraConfig(r=s.rank, lora_alpha=2 * s.rank, target_modules=s.targets, task_type="CAUSAL_LM"),
    )
    model.base_model.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})

    def encode(row):
        prompt = tokenizer(f"Question: {row['question']}\nAnswer: ")["input_ids"]
        answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        ids = (prompt + answer)[: s.max_len]
        labels = ([-100] * len(prompt) + answer)[: s.max_len]
        return {"input_ids": ids, "labels": labels}

    raw = load_dataset("json", data_files=data, split="train")
    rows = raw.map(encode, remove_columns=raw.column_names, num_proc=s.map_procs, load_from_cache_file=False)

    loader = DataLoader(
        rows,
        batch_size=s.micro_batch,
        shuffle=True,
        collate_fn=Collator(tokenizer.pad_token_id or tokenizer.eos_token_id),
        num_workers=2,
        pin_memory=True,
        drop_last=True,
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=lr, weight_decay=0.0, fused=True)
    total = epochs * math.ceil(len(loader) / s.accum)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    if resume_from:
        accelerator.load_state(resume_from)

    step = 0
    model.train()
    for epoch in range(epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                loss = loss / s.accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(trainable, 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            avg = accelerator.gather(loss.detach()).mean().item()
            accelerator.log({"loss": avg}, step=step)
            step += 1
        accelerator.save_state(os.path.join(output, f"epoch_{epoch}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(output)
        tokenizer.save_pretrained(output)
    accelerator.end_training()


if __name__ == "__main__":
    app()
