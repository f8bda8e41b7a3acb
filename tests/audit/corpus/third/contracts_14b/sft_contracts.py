"""Contract assistant: LoRA on a 14B chat model, 4x H100-80G, started by run.sh through torchrun.

The 310,000 chats of the training set have a median of 620 tokens, so rows are packed to 8,192.
"""

import os
import sys
from pathlib import Path

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

BASE = "Qwen/Qwen2.5-14B-Instruct"
OUT = Path("runs/contracts-14b")
ROW = 8192
ROWS_PER_UPDATE = 32


def accumulation():
    """One packed row per card and micro-step; the rest of the update comes from accumulation."""
    if "WORLD_SIZE" not in os.environ:
        sys.exit("start me with ./run.sh: the batch depends on the number of cards")
    world = int(os.environ["WORLD_SIZE"])
    if ROWS_PER_UPDATE % world:
        sys.exit(f"{ROWS_PER_UPDATE} rows do not divide over {world} cards")
    return ROWS_PER_UPDATE // world


def main():
    chats = load_dataset("json", data_files="data/contracts_chats.jsonl", split="train")
    chats = chats.select_columns(["messages"])

    config = SFTConfig(
        output_dir=str(OUT),
        model_init_kwargs={
            "dtype": "bfloat16",
            # There is no flash-attn wheel for our CUDA; this build comes through the `kernels` package
            # and takes the document borders of the packed rows.
            "attn_implementation": "kernels-community/flash-attn2",
        },
        packing=True,
        packing_strategy="bfd_split",
        max_length=ROW,
        assistant_only_loss=True,
        # One row is already 8,192 real tokens, so 1 is not a small batch here.
        per_device_train_batch_size=1,
        gradient_accumulation_steps=accumulation(),
        num_train_epochs=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        bf16=True,
        # 61 GiB with, 97 GiB without (measured with one row of 8,192).
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=False,
        dataset_num_proc=32,
        # Packed rows are ready made, the collator only concatenates: two workers keep up with ease.
        dataloader_num_workers=2,
        dataloader_prefetch_factor=4,
        logging_steps=10,
        save_steps=200,
        save_total_limit=3,
        seed=2718,
    )
    trainer = SFTTrainer(
        model=BASE,
        args=config,
        train_dataset=chats,
        processing_class=AutoTokenizer.from_pretrained(BASE),
        peft_config=LoraConfig(
            r=32,
            lora_alpha=32,
            lora_dropout=0.0,
            # no lm_head: the trainer's fused head could not train an adapter there
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(OUT) if OUT.is_dir() else None)
    trainer.save_model()


if __name__ == "__main__":
    main()
