import click
from datasets import load_dataset
from liger_kernel.transformers import apply_liger_kernel_to_qwen2
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)


def load_model(name):
    apply_liger_kernel_to_qwen2()
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
    )
    model = AutoModelForCausalLM.from_pretrained(
        name,
        quantization_config=quant,
        attn_implementation="flash_attention_2",
        device_map={"": 0},
    )
    model.config.use_cache = False
    lora = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, lora)


def encode(row, tokenizer, max_len):
    prompt = tokenizer(f"# Task: {row['task']}\n")["input_ids"]
    code = tokenizer(row["code"])["input_ids"] + [tokenizer.eos_token_id]
    ids = (prompt + code)[:max_len]
    labels = ([-100] * len(prompt) + code)[:max_len]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


@click.command()
@click.option("--model", default="Qwen/Qwen2.5-Coder-7B")
@click.option("--data", required=True, type=click.Path(exists=True))
@click.option("--out", default="out/coder-lora")
@click.option("--max-len", default=2048)
@click.option("--batch", default=2)
@click.option("--accum", default=8)
@click.option("--epochs", default=2.0)
@click.option("--lr", default=1e-4)
@click.option("--workers", default=2)
@click.option("--seed", default=0)
@click.option("--resume/--no-resume", default=False)
def main(model, data, out, max_len, batch, accum, epochs, lr, workers, seed, resume):
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model)
    net = load_model(model)
    rows = load_dataset("json", data_files=data, split="train")
    rows = rows.map(
        encode, fn_kwargs={"tokenizer": tokenizer, "max_len": max_len}, remove_columns=rows.column_names
    )
    args = TrainingArguments(
        output_dir=out,
        num_train_epochs=epochs,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        optim="paged_adamw_8bit",
        dataloader_num_workers=workers,
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        seed=seed,
        report_to="none",
    )
    trainer = Trainer(
        model=net,
        args=args,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=resume or None)
    net.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
