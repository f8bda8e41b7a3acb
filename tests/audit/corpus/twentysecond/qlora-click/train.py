import click
from datasets import load_dataset
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

from modeling import load


def tokenize(batch, tokenizer, max_len):
    rows = {"input_ids": [], "attention_mask": [], "labels": []}
    for messages in batch["messages"]:
        full = tokenizer.apply_chat_template(messages, tokenize=True)[:max_len]
        prompt = tokenizer.apply_chat_template(
            messages[:-1], tokenize=True, add_generation_prompt=True
        )
        n = min(len(prompt), len(full))
        rows["input_ids"].append(full)
        rows["attention_mask"].append([1] * len(full))
        rows["labels"].append([-100] * n + full[n:])
    return rows


@click.command()
@click.option("--model", default="meta-llama/Llama-3.1-8B-Instruct")
@click.option("--data", default="data/train.jsonl", type=click.Path())
@click.option("--out", default="out/qlora")
@click.option("--epochs", default=2.0)
@click.option("--lr", default=2e-4)
@click.option("--rank", default=16)
@click.option("--batch", default=4)
@click.option("--accum", default=4)
@click.option("--max-len", default=2048)
@click.option("--seed", default=42)
@click.option("--resume/--no-resume", default=False, help="continue from the last checkpoint")
def main(model, data, out, epochs, lr, rank, batch, accum, max_len, seed, resume):
    net, tokenizer = load(model, rank)

    ds = load_dataset("json", data_files=data, split="train")
    ds = ds.map(
        tokenize,
        batched=True,
        num_proc=4,
        remove_columns=ds.column_names,
        fn_kwargs={"tokenizer": tokenizer, "max_len": max_len},
    )

    args = TrainingArguments(
        output_dir=out,
        num_train_epochs=epochs,
        learning_rate=lr,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        ddp_find_unused_parameters=False,
        bf16=True,
        optim="paged_adamw_8bit",
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        max_grad_norm=0.3,
        dataloader_num_workers=0,
        dataloader_prefetch_factor=4,
        group_by_length=True,
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        seed=seed,
        report_to="none",
    )
    trainer = Trainer(
        model=net,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main()
