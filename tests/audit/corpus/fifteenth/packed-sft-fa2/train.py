"""LoRA SFT with packed rows; attention stays inside each document (varlen flash attention)."""
import argparse
import os

import torch
from accelerate import PartialState
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

COMMON = dict(
    bf16=True,
    packing=True,
    packing_strategy="bfd",
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    optim="adamw_torch_fused",
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    logging_steps=10,
    save_strategy="steps",
    save_steps=250,
    save_total_limit=3,
    dataset_num_proc=8,
    ddp_find_unused_parameters=False,
    report_to="tensorboard",
)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--max-length", type=int, default=4096)
    ap.add_argument("--micro-batch", type=int, default=2)
    ap.add_argument("--global-batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-4)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()
    set_seed(args.seed)

    state = PartialState()
    accum, rest = divmod(args.global_batch, args.micro_batch * state.num_processes)
    if rest or not accum:
        raise SystemExit("global batch must be a multiple of micro batch x processes")

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map={"": state.local_process_index},
        use_cache=False,
    )
    config = SFTConfig(
        output_dir=args.out,
        max_length=args.max_length,
        per_device_train_batch_size=args.micro_batch,
        gradient_accumulation_steps=accum,
        learning_rate=args.lr,
        num_train_epochs=2,
        seed=args.seed,
        **COMMON,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=load_dataset("json", data_files=args.data, split="train"),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(args.out) if os.path.isdir(args.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
