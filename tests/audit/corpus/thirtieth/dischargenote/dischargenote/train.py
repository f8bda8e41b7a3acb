import argparse

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from . import MODEL
from .data import load_split


def parse() -> argparse.Namespace:
    ap = argparse.ArgumentParser()
    ap.add_argument("--train", required=True)
    ap.add_argument("--valid", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--micro", type=int, default=2)
    ap.add_argument("--accum", type=int, default=16)
    return ap.parse_args()


def main() -> None:
    opt = parse()
    args = TrainingArguments(
        output_dir=opt.out,
        per_device_train_batch_size=opt.micro,
        per_device_eval_batch_size=opt.micro,
        gradient_accumulation_steps=opt.accum,
        num_train_epochs=2,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        bf16=True,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=True,
        dataloader_num_workers=4,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        logging_steps=10,
        seed=17,
    )
    tok = AutoTokenizer.from_pretrained(MODEL)
    with args.main_process_first(desc="tokenise"):
        train_ds = load_split(opt.train, tok)
        valid_ds = load_split(opt.valid, tok)

    # fp32 master weights, autocast does the rest
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=valid_ds,
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(opt.out)


if __name__ == "__main__":
    main()
