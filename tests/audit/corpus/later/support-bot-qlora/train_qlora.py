"""QLoRA fine-tune of the support bot on exported Zendesk conversations."""

import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser, set_seed
from trl import SFTConfig, SFTTrainer


@dataclass
class BotArguments:
    model_name: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    data_file: str = field(default="data/tickets.jsonl", metadata={"help": "one conversation a line, key `turns`"})
    lora_r: int = field(default=32)
    lora_alpha: int = field(default=64)
    merged_dir: str | None = field(default=None, metadata={"help": "write a merged model here after training"})


SYSTEM = "You are the support assistant of Norrland Outdoor. Be short, friendly and precise."


def to_messages(turns):
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in turns:
        role = "assistant" if turn["author"] == "agent" else "user"
        messages.append({"role": role, "content": turn["body"].strip()})
    return messages


def main():
    parser = HfArgumentParser((BotArguments, SFTConfig))
    bot, config = parser.parse_args_into_dataclasses()
    set_seed(config.seed)

    tokenizer = AutoTokenizer.from_pretrained(bot.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    def render(row):
        return {"text": tokenizer.apply_chat_template(to_messages(row["turns"]), tokenize=False)}

    raw = load_dataset("json", data_files=bot.data_file, split="train")
    raw = raw.filter(lambda row: any(turn["author"] == "agent" for turn in row["turns"]), num_proc=8)
    dataset = raw.map(render, remove_columns=raw.column_names, num_proc=8)
    parts = dataset.train_test_split(test_size=0.02, seed=config.seed)

    model = AutoModelForCausalLM.from_pretrained(
        bot.model_name,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        ),
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=bot.lora_r,
            lora_alpha=bot.lora_alpha,
            lora_dropout=0.05,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train(resume_from_checkpoint=config.resume_from_checkpoint)
    trainer.save_model()

    if bot.merged_dir and trainer.is_world_process_zero():
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        merged.save_pretrained(bot.merged_dir)
        tokenizer.save_pretrained(bot.merged_dir)
        print("merged model in", os.path.abspath(bot.merged_dir))


if __name__ == "__main__":
    main()
