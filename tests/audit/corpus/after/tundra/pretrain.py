import argparse

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="TinyLlama/TinyLlama_v1.1")
    p.add_argument("--corpus", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--block", type=int, default=2048)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accumulation", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--deepspeed", default=None)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def main():
    a = parse()
    set_seed(a.seed)
    training = TrainingArguments(
        output_dir=a.out,
        num_train_epochs=1,
        per_device_train_batch_size=a.batch,
        gradient_accumulation_steps=a.accumulation,
        learning_rate=a.lr,
        lr_scheduler_type="cosine",
        warmup_steps=0.01,
        weight_decay=0.1,
        adam_beta2=0.95,
        bf16=True,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        deepspeed=a.deepspeed,
        dataloader_num_workers=4,
        logging_steps=20,
        save_steps=1000,
        save_total_limit=2,
        report_to="tensorboard",
        seed=a.seed,
    )
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16, attn_implementation="sdpa")

    corpus = load_dataset("json", data_files=a.corpus, split="train")

    def encode(rows):
        return tokenizer(
            [t + tokenizer.eos_token for t in rows["text"]],
            truncation=True,
            max_length=a.block,
            padding="max_length",
        )

    with training.main_process_first():
        corpus = corpus.map(encode, batched=True, num_proc=16, remove_columns=corpus.column_names)

    trainer = Trainer(
        model=model,
        args=training,
        train_dataset=corpus,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(a.out))
    trainer.save_model()


if __name__ == "__main__":
    main()
