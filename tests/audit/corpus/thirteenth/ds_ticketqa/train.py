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
    model_name: str = field(default="meta-llama/Llama-3.2-3B-Instruct")
    train_file: str = field(default="data/tickets.jsonl")
    max_length: int = field(default=2048)


def main():
    parser = HfArgumentParser((ScriptArguments, TrainingArguments))
    script_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
    )
    model.config.use_cache = False
    model.config.pad_token_id = tokenizer.pad_token_id

    def encode(batch):
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": t}, {"role": "assistant", "content": r}], tokenize=False
            )
            for t, r in zip(batch["ticket"], batch["reply"])
        ]
        return tokenizer(texts, truncation=True, max_length=script_args.max_length, padding="max_length")

    raw = load_dataset("json", data_files=script_args.train_file, split="train")
    raw = raw.train_test_split(test_size=0.02, seed=training_args.seed)
    with training_args.main_process_first(desc="tokenise"):
        data = raw.map(encode, batched=True, num_proc=8, remove_columns=raw["train"].column_names)

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
