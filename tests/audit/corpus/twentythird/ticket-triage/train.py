import os
from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


@dataclass
class ScriptArgs:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B")
    train_file: str = field(default="data/train.jsonl")
    eval_file: str = field(default="data/eval.jsonl")
    max_length: int = field(default=2048)


def main():
    args, targs = HfArgumentParser((ScriptArgs, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(targs.seed)

    tok = AutoTokenizer.from_pretrained(args.model_name)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name,
        device_map="auto",
    )

    def encode(batch):
        texts = [t + tok.eos_token for t in batch["text"]]
        enc = tok(texts, truncation=True, padding="max_length", max_length=args.max_length)
        enc["labels"] = [ids.copy() for ids in enc["input_ids"]]
        return enc

    raw = load_dataset("json", data_files={"train": args.train_file, "eval": args.eval_file})
    with targs.main_process_first(desc="tokenize"):
        data = raw.map(encode, batched=True, num_proc=8, remove_columns=raw["train"].column_names)

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        data_collator=default_data_collator,
        processing_class=tok,
    )
    last = get_last_checkpoint(targs.output_dir) if os.path.isdir(targs.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
