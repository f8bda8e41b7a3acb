import click
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import set_seed
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_linear_schedule_with_warmup,
)

MAX_SOURCE = 1024
MAX_TARGET = 192


def preprocess(tokenizer):
    def fn(batch):
        enc = tokenizer(["summarize: " + t for t in batch["text"]], max_length=MAX_SOURCE, truncation=True)
        target = tokenizer(
            text_target=batch["summary"],
            max_length=MAX_TARGET,
            truncation=True,
            padding="max_length",
        )
        enc["labels"] = target["input_ids"]
        return enc

    return fn


@click.command()
@click.option("--model-name", default="google/flan-t5-base")
@click.option("--data", default="bills.jsonl")
@click.option("--batch-size", default=8)
@click.option("--accum", default=8)
@click.option("--epochs", default=3)
@click.option("--lr", default=1e-4)
@click.option("--out", default="out/bills")
@click.option("--seed", default=1234)
def main(model_name, data, batch_size, accum, epochs, lr, out, seed):
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(gradient_accumulation_steps=accum, kwargs_handlers=[ddp])
    set_seed(seed)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    model = AutoModelForSeq2SeqLM.from_pretrained(model_name)

    ds = load_dataset("json", data_files=data, split="train").train_test_split(test_size=0.05, seed=seed)
    with accelerator.main_process_first():
        ds = ds.map(preprocess(tokenizer), batched=True, remove_columns=ds["train"].column_names)

    collator = DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=8)
    train_dl = DataLoader(
        ds["train"], batch_size=batch_size, shuffle=True, collate_fn=collator, num_workers=4, pin_memory=True
    )
    eval_dl = DataLoader(ds["test"], batch_size=batch_size, collate_fn=collator, num_workers=2, pin_memory=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    total = epochs * len(train_dl) // accum
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.05 * total), total)
    model, optimizer, train_dl, eval_dl, scheduler = accelerator.prepare(
        model, optimizer, train_dl, eval_dl, scheduler
    )

    for epoch in range(epochs):
        model.train()
        for step, batch in enumerate(train_dl):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

        model.eval()
        losses = []
        with torch.no_grad():
            for batch in eval_dl:
                n = batch["labels"].size(0)
                losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(n)))
        accelerator.print(f"epoch {epoch} eval loss {torch.cat(losses).mean().item():.4f}")

        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            accelerator.unwrap_model(model).save_pretrained(out, safe_serialization=False)
            tokenizer.save_pretrained(out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
