from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model: str = field(default="Qwen/Qwen2.5-7B-Instruct")
    data: str = field(default="forum.jsonl")
    output_dir: str = field(default="runs/forum")
    max_len: int = field(default=4096)
    lr: float = field(default=1e-4)


def main():
    (cli,) = HfArgumentParser(Args).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(cli.model)
    model = AutoModelForCausalLM.from_pretrained(
        cli.model,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
        trust_remote_code=True,
    )

    peft_config = LoraConfig(
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=[
            "q_proj", "k_proj", "v_proj", "o_proj",
            "gate_proj", "up_proj", "down_proj", "lm_head",
        ],
        task_type="CAUSAL_LM",
    )

    args = SFTConfig(
        output_dir=cli.output_dir,
        max_seq_length=cli.max_len,
        packing=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        num_train_epochs=1,
        learning_rate=cli.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        use_liger_kernel=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
        seed=42,
    )

    dataset = load_dataset("json", data_files=cli.data, split="train")
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
