from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer


@dataclass
class ScriptArgs:
    model_id: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    dataset_path: str = field(default="data/train.jsonl")
    output_dir: str = field(default="outputs/llama31-qlora")
    max_seq_len: int = field(default=2048, metadata={"help": "longer conversations are cut"})
    per_device_batch_size: int = field(default=2)
    grad_accum: int = field(default=4)
    learning_rate: float = field(default=2e-4)
    epochs: float = field(default=3)
    lora_r: int = field(default=16)
    lora_alpha: int = field(default=32)
    seed: int = field(default=42)
    resume_from_checkpoint: Optional[str] = field(default=None)


def load_model_and_tokenizer(args: ScriptArgs):
    bnb_config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True,
    )
    model = AutoModelForCausalLM.from_pretrained(
        args.model_id,
        quantization_config=bnb_config,
        device_map="auto",
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    tokenizer = AutoTokenizer.from_pretrained(args.model_id)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"
    return model, tokenizer


def main():
    (args,) = HfArgumentParser(ScriptArgs).parse_args_into_dataclasses()
    set_seed(args.seed)
    model, tokenizer = load_model_and_tokenizer(args)

    dataset = load_dataset("json", data_files=args.dataset_path, split="train")

    def to_text(example):
        return {"text": tokenizer.apply_chat_template(example["messages"], tokenize=False)}

    dataset = dataset.map(to_text, remove_columns=dataset.column_names)

    peft_config = LoraConfig(
        r=args.lora_r,
        lora_alpha=args.lora_alpha,
        lora_dropout=0.05,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )

    training_args = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.per_device_batch_size,
        gradient_accumulation_steps=args.grad_accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="paged_adamw_8bit",
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        max_seq_length=args.max_seq_len,
        dataset_text_field="text",
        packing=False,
        logging_steps=10,
        save_strategy="epoch",
        report_to="none",
        seed=args.seed,
    )

    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main()
