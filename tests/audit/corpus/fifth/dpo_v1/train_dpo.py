"""Full-parameter DPO of our SFT checkpoint on the annotators' preferences."""
import argparse
import random

from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from prefs_util import drop_ties, to_messages


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen3-1.7B")
    p.add_argument("--prefs", default="prefs/2025q3.jsonl")
    p.add_argument("--out", default="out/dpo")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--beta", type=float, default=0.1)
    return p.parse_args()


def load_split(path):
    rows = [to_messages(r) for r in drop_ties(load_dataset("json", data_files=path, split="train"))]
    random.shuffle(rows)
    n = max(64, len(rows) // 50)
    return Dataset.from_list(rows[n:]), Dataset.from_list(rows[:n])


def main():
    a = get_args()
    tok = AutoTokenizer.from_pretrained(a.model, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(
        a.model,
        dtype="float32",
        trust_remote_code=True,
        attn_implementation="sdpa",
    )
    train, dev = load_split(a.prefs)

    cfg = DPOConfig(
        output_dir=a.out,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=5e-7,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        beta=a.beta,
        max_length=2048,
        max_prompt_length=1024,
        # the reference's log-probs are computed once before training, so no second model is kept
        precompute_ref_log_probs=False,
        precompute_ref_batch_size=16,
        padding_free=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        eval_strategy="steps",
        eval_steps=100,
        save_strategy="steps",
        save_steps=100,
        save_total_limit=2,
        logging_steps=10,
        report_to="none",
    )
    trainer = DPOTrainer(model=model, args=cfg, train_dataset=train, eval_dataset=dev, processing_class=tok)
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
