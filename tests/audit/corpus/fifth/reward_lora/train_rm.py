import argparse

from datasets import load_dataset
from peft import LoraConfig, TaskType
from trl import RewardConfig, RewardTrainer

from speed import Speed

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="meta-llama/Llama-3.2-3B-Instruct")
parser.add_argument("--pairs", default="data/pairs.jsonl")
parser.add_argument("--out", default="runs/rm")
parser.add_argument("--max_length", type=int, default=1024)


def main():
    a = parser.parse_args()
    ds = load_dataset("json", data_files=a.pairs, split="train").train_test_split(test_size=500, seed=3)

    cfg = RewardConfig(
        output_dir=a.out,
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
        max_length=a.max_length,
        beta=0.1,
        center_rewards_coefficient=0.01,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        learning_rate=1e-4,
        # warm up over 3 %, then cosine down to a tenth of the peak
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        save_total_limit=2,
        seed=3,
        report_to="none",
    )
    peft = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=16,
        lora_alpha=32,
        target_modules="all-linear",
        modules_to_save=["score"],
    )
    trainer = RewardTrainer(
        model=a.model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=peft,
        callbacks=[Speed()],
    )
    trainer.train()
    trainer.save_model(a.out)


if __name__ == "__main__":
    main()
