from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


@dataclass
class Extra:
    data: str = field(metadata={"help": "jsonl with dictation and note"})
    base: str = "Qwen/Qwen2.5-1.5B"
    max_length: int = 3072


def main():
    args, extra = HfArgumentParser((TrainingArguments, Extra)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(extra.base)

    def encode(row):
        prompt = tokenizer(f"Dictation:\n{row['dictation']}\n\nSOAP note:\n")["input_ids"]
        note = tokenizer(row["note"])["input_ids"] + [tokenizer.eos_token_id]
        return {
            "input_ids": prompt + note,
            "attention_mask": [1] * (len(prompt) + len(note)),
            "labels": [-100] * len(prompt) + note,
        }

    rows = load_dataset("json", data_files=extra.data, split="train")
    with args.main_process_first(desc="tokenise"):
        rows = rows.map(encode, remove_columns=rows.column_names, num_proc=16, load_from_cache_file=False)
        rows = rows.filter(lambda r: len(r["input_ids"]) <= extra.max_length, num_proc=16, load_from_cache_file=False)

    model = AutoModelForCausalLM.from_pretrained(
        extra.base,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=rows,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
