from functools import partial

import typer
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MAX_LEN = 512


def encode(row, tok):
    q = tok(f"Question: {row['question']}\nAnswer:", add_special_tokens=False)["input_ids"]
    a = tok(f" {row['answer']}{tok.eos_token}", add_special_tokens=False)["input_ids"]
    ids = (q + a)[:MAX_LEN]
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": ([-100] * len(q) + a)[:MAX_LEN],
    }


def main(
    model: str = "Qwen/Qwen2.5-0.5B",
    train_file: str = "data/qa.jsonl",
    output_dir: str = "out/qa",
    epochs: float = 3.0,
    batch: int = 16,
    accum: int = 1,
    lr: float = 1e-5,
    warmup_ratio: float = 0.0,
    scheduler: str = "linear",
    resume: bool = False,
    seed: int = 3,
):
    set_seed(seed)
    tok = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model)
    net.config.use_cache = False

    ds = load_dataset("json", data_files=train_file, split="train")
    ds = ds.map(partial(encode, tok=tok), remove_columns=ds.column_names, num_proc=4)

    targs = TrainingArguments(
        output_dir=output_dir,
        num_train_epochs=epochs,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=lr,
        warmup_ratio=warmup_ratio,
        lr_scheduler_type=scheduler,
        optim="adamw_torch_fused",
        bf16=True,
        tf32=True,
        dataloader_num_workers=0,
        dataloader_prefetch_factor=4,
        logging_steps=20,
        save_strategy="epoch",
        report_to="none",
        seed=seed,
    )
    trainer = Trainer(
        model=net,
        args=targs,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True),
        processing_class=tok,
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()


if __name__ == "__main__":
    typer.run(main)
