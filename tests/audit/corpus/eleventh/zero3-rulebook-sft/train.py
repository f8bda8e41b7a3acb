import glob
import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class ScriptArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-2-7b-hf")
    dataset_name: str = field(default=None)
    max_length: int = field(default=2048)


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name_or_path)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
    )
    model.config.use_cache = False

    dataset = load_dataset(script_args.dataset_name, split="train")

    def tokenize(batch):
        texts = [
            f"### Section: {q}\n### Summary: {a}{tokenizer.eos_token}"
            for q, a in zip(batch["section"], batch["summary"])
        ]
        return tokenizer(texts, truncation=True, max_length=script_args.max_length)

    with training_args.main_process_first():
        dataset = dataset.map(tokenize, batched=True, num_proc=8, remove_columns=dataset.column_names)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=dataset,
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=False),
    )
    resume = bool(glob.glob(os.path.join(training_args.output_dir, "checkpoint-*")))
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
