from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

from templates import encode_chat


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    use_flash_attn: bool = field(default=False)
    lora_rank: int = field(default=32)
    lora_alpha: int = field(default=64)
    lora_dropout: float = field(default=0.05)


@dataclass
class DataArguments:
    train_file: str = field(default="data/train.jsonl")
    max_seq_length: int = field(default=4096)
    preprocessing_num_workers: Optional[int] = field(default=8)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        trust_remote_code=True,
        attn_implementation="flash_attention_2" if model_args.use_flash_attn else "sdpa",
    )
    model.config.use_cache = False
    if training_args.gradient_checkpointing:
        model.enable_input_require_grads()

    peft_config = LoraConfig(
        task_type="CAUSAL_LM",
        r=model_args.lora_rank,
        lora_alpha=model_args.lora_alpha,
        lora_dropout=model_args.lora_dropout,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    )
    model = get_peft_model(model, peft_config)

    raw = load_dataset("json", data_files=data_args.train_file, split="train")
    with training_args.main_process_first(desc="tokenising"):
        train_set = raw.map(
            encode_chat,
            fn_kwargs={"tokenizer": tokenizer, "max_seq_length": data_args.max_seq_length},
            num_proc=data_args.preprocessing_num_workers,
            remove_columns=raw.column_names,
        )

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
