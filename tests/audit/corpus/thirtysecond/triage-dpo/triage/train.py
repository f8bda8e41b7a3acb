import argparse
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from triage.pairs import load_pairs
from triage.settings import Settings


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--settings", default="configs/dpo.yaml")
    ap.add_argument("--resume", action="store_true")
    return ap.parse_args()


def main():
    cli = parse()
    s = Settings.load(cli.settings)

    tok = AutoTokenizer.from_pretrained(s.model, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(
        s.model,
        dtype=torch.bfloat16,
        attn_implementation="sdpa",
        trust_remote_code=True,
    )
    model.config.use_cache = False

    train, test = load_pairs(s.pairs)
    args = DPOConfig(
        output_dir=s.out,
        beta=s.beta,
        learning_rate=s.lr,
        num_train_epochs=s.epochs,
        per_device_train_batch_size=s.micro_batch,
        per_device_eval_batch_size=s.micro_batch,
        gradient_accumulation_steps=s.accumulation,
        max_length=s.max_length,
        max_prompt_length=s.max_prompt_length,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        bf16=True,
        gradient_checkpointing=True,
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        logging_steps=10,
        dataset_num_proc=8,
        seed=s.seed,
        report_to="wandb",
        run_name=os.path.basename(s.out),
    )
    trainer = DPOTrainer(model=model, args=args, train_dataset=train, eval_dataset=test, processing_class=tok)
    trainer.train(resume_from_checkpoint=cli.resume)
    trainer.save_model(s.out)


if __name__ == "__main__":
    main()
