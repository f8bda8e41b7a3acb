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
    set_seed,
)


@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-0.5B")
    dataset: str = field(default="data/corpus.jsonl")
    max_length: int = field(default=1024)


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name, dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    raw = load_dataset("json", data_files=script_args.dataset, split="train")

    def tokenize(batch):
        return tokenizer(batch["text"], truncation=True, max_length=script_args.max_length)

    data = raw.map(tokenize, batched=True, num_proc=8, remove_columns=raw.column_names)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
