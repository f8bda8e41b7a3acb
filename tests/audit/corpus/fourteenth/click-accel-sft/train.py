import math

import click
import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
)


def make_encoder(tokenizer, max_len):
    def encode(row):
        prompt = tokenizer(f"Question: {row['question']}\nAnswer:", add_special_tokens=False)["input_ids"]
        answer = tokenizer(" " + row["answer"], add_special_tokens=False)["input_ids"]
        answer = answer + [tokenizer.eos_token_id]
        ids = (prompt + answer)[:max_len]
        labels = ([-100] * len(prompt) + answer)[:max_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return encode


@click.command()
@click.option("--model-name", default="Qwen/Qwen2.5-0.5B")
@click.option("--data-path", default="data/qa.jsonl")
@click.option("--output-dir", default="out")
@click.option("--precision", type=click.Choice(["no", "fp16", "bf16"]), default="bf16")
@click.option("--batch-size", default=8)
@click.option("--grad-accum", default=4)
@click.option("--epochs", default=3)
@click.option("--lr", default=2e-5)
@click.option("--max-len", default=1024)
def main(model_name, data_path, output_dir, precision, batch_size, grad_accum, epochs, lr, max_len):
    accelerator = Accelerator(gradient_accumulation_steps=grad_accum)
    tokenizer = AutoTokenizer.from_pretrained(model_name)

    with accelerator.main_process_first():
        dataset = load_dataset("json", data_files=data_path, split="train")
        dataset = dataset.map(make_encoder(tokenizer, max_len), remove_columns=dataset.column_names)

    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        num_workers=2,
        pin_memory=True,
    )

    model = AutoModelForCausalLM.from_pretrained(model_name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    total_steps = math.ceil(len(loader) / grad_accum) * epochs
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total_steps), total_steps)
    scheduler = accelerator.prepare(scheduler)

    accelerator.print(f"precision={precision} updates={total_steps}")
    model.train()
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss / grad_accum)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(output_dir)


if __name__ == "__main__":
    main()
