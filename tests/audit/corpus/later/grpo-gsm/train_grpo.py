"""GRPO on GSM8K-style word problems; six GPUs train, two generate."""

import argparse
import os

from datasets import load_dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from rewards import accuracy, has_box

PROMPT = "Solve the problem step by step and put the final number in \\boxed{}."


def rows(split):
    data = load_dataset("openai/gsm8k", "main", split=split)
    return data.map(
        lambda row: {
            "prompt": [{"role": "system", "content": PROMPT}, {"role": "user", "content": row["question"]}],
            "answer": row["answer"].split("####")[-1].strip(),
        },
        remove_columns=["question"],
        num_proc=4,
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--out", default="runs/grpo-3b")
    p.add_argument("--vllm-host", default="127.0.0.1")
    p.add_argument("--vllm-port", type=int, default=8000)
    args = p.parse_args()

    config = GRPOConfig(
        output_dir=args.out,
        model_init_kwargs={"dtype": "float16", "attn_implementation": "sdpa"},
        # 6 GPUs x 4 x 4 = 96 completions per optimizer step
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_generations=10,
        max_prompt_length=512,
        max_completion_length=1024,
        temperature=1.0,
        learning_rate=1e-6,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        max_steps=1000,
        beta=0.0,
        loss_type="dr_grpo",
        scale_rewards="none",
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        use_vllm=True,
        vllm_server_host=args.vllm_host,
        vllm_server_port=args.vllm_port,
        logging_steps=5,
        log_completions=True,
        num_completions_to_print=2,
        save_steps=100,
        save_total_limit=3,
        seed=17,
        report_to="wandb",
    )

    trainer = GRPOTrainer(
        model=args.model,
        args=config,
        reward_funcs=[accuracy, has_box],
        train_dataset=rows("train"),
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
