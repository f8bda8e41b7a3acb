import logging

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

import settings as S
from data import build

logging.basicConfig(level=logging.INFO)


def main():
    set_seed(S.SEED)
    tok = AutoTokenizer.from_pretrained(S.BASE_MODEL)
    ds = build(tok)

    model = AutoModelForCausalLM.from_pretrained(
        S.BASE_MODEL, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    args = TrainingArguments(
        output_dir=S.RUN_DIR,
        num_train_epochs=S.EPOCHS,
        per_device_train_batch_size=S.MICRO_BATCH,
        per_device_eval_batch_size=S.MICRO_BATCH,
        gradient_accumulation_steps=S.ACCUM,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=S.LR,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        tf32=True,
        optim="adamw_torch_fused",
        group_by_length=True,
        dataloader_num_workers=4,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=500,
        save_strategy="steps",
        save_steps=250,
        save_total_limit=2,
        seed=S.SEED,
        report_to=["tensorboard"],
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(f"{S.RUN_DIR}/final")


if __name__ == "__main__":
    main()
