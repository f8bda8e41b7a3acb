import argparse

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

from prompts import render

BASE = "EleutherAI/pythia-1.4b"
RESPONSE_TEMPLATE = "### Answer:\n"


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = "<|padding|>"
    tokenizer.padding_side = "right"

    rows = load_dataset("json", data_files=args.data, split="train")
    rows = rows.map(render, fn_kwargs={"eos": tokenizer.eos_token}, remove_columns=rows.column_names)
    rows = rows.shuffle(seed=args.seed)
    held_out = rows.select(range(200))

    model = AutoModelForCausalLM.from_pretrained(BASE)
    model.config.use_cache = False

    peft_config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        task_type="CAUSAL_LM",
    )
    collator = DataCollatorForCompletionOnlyLM(RESPONSE_TEMPLATE, tokenizer=tokenizer)

    config = SFTConfig(
        output_dir=args.out,
        dataset_text_field="text",
        max_seq_length=768,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        optim="adamw_torch_fused",
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        dataloader_num_workers=2,
        report_to="none",
        seed=args.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
        data_collator=collator,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
