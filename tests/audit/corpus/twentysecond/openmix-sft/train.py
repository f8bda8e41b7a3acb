from dataclasses import dataclass, field
from typing import List, Optional

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer


@dataclass
class ModelArgs:
    model_name_or_path: str = field(default="meta-llama/Llama-3.2-3B-Instruct")
    lora_r: int = field(default=32)
    lora_alpha: int = field(default=64)
    lora_target_modules: List[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"]
    )


@dataclass
class DataArgs:
    train_file: str = field(default="data/openmix.jsonl")
    max_len: int = field(default=4096)
    preprocessing_num_workers: int = field(default=8)


@dataclass
class RunArgs:
    output_dir: str = field(default="out/openmix")
    learning_rate: float = field(default=1e-4)
    num_train_epochs: float = field(default=2.0)
    batch_size: int = field(default=2)
    accumulation: int = field(default=4)
    warmup_ratio: float = field(default=0.0)
    weight_decay: float = field(default=0.0)
    seed: int = field(default=42)
    completion_only: bool = field(
        default=True, metadata={"help": "Compute the loss on the completion only."}
    )
    resume_from: Optional[str] = field(default=None)


def to_prompt_completion(row):
    return {
        "prompt": [{"role": "user", "content": row["instruction"]}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


def main():
    margs, dargs, rargs = HfArgumentParser((ModelArgs, DataArgs, RunArgs)).parse_args_into_dataclasses()
    set_seed(rargs.seed)

    tokenizer = AutoTokenizer.from_pretrained(margs.model_name_or_path)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    ds = load_dataset("json", data_files=dargs.train_file, split="train")
    ds = ds.map(
        to_prompt_completion,
        remove_columns=ds.column_names,
        num_proc=dargs.preprocessing_num_workers,
    )

    model = AutoModelForCausalLM.from_pretrained(
        margs.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )

    cfg = SFTConfig(
        output_dir=rargs.output_dir,
        learning_rate=rargs.learning_rate,
        num_train_epochs=rargs.num_train_epochs,
        per_device_train_batch_size=rargs.batch_size,
        gradient_accumulation_steps=rargs.accumulation,
        warmup_ratio=rargs.warmup_ratio,
        weight_decay=rargs.weight_decay,
        max_seq_length=dargs.max_len,
        packing=True,
        completion_only_loss=False,
        use_liger_kernel=True,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        dataset_num_proc=dargs.preprocessing_num_workers,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=250,
        save_total_limit=2,
        seed=rargs.seed,
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=margs.lora_r,
            lora_alpha=margs.lora_alpha,
            lora_dropout=0.0,
            target_modules=margs.lora_target_modules,
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train(resume_from_checkpoint=rargs.resume_from)
    trainer.save_model(rargs.output_dir)


if __name__ == "__main__":
    main()
