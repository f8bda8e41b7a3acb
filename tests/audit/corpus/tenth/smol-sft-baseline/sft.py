"""SFT of a small chat model with packing. Start with `accelerate launch --num_processes 4 sft.py`."""
from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Args:
    model_name: str = field(default="HuggingFaceTB/SmolLM2-1.7B")
    template_from: str = field(default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    dataset_name: str = field(default="HuggingFaceTB/smoltalk")
    dataset_config: str = field(default="all")
    output_dir: str = field(default="outputs/smol-sft")
    max_length: int = field(default=4096)
    learning_rate: float = field(default=2e-5)
    resume: Optional[str] = field(default=None)


def main():
    (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(args.template_from)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(
        args.model_name,
        dtype=torch.float32,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    # 1.1M conversations
    dataset = load_dataset(args.dataset_name, args.dataset_config, split="train").select_columns(["messages"])

    config = SFTConfig(
        output_dir=args.output_dir,
        num_train_epochs=1,
        max_length=args.max_length,
        packing=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_torch_fused",
        bf16=True,
        dataset_num_proc=16,
        dataloader_num_workers=0,
        ddp_find_unused_parameters=False,
        logging_steps=10,
        save_strategy="steps",
        save_steps=250,
        save_total_limit=2,
        report_to="tensorboard",
        seed=7,
    )
    trainer = SFTTrainer(model=model, args=config, train_dataset=dataset, processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
