import json
import os
import sys

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


def main(config_path):
    with open(config_path) as f:
        cfg = json.load(f)
    args = TrainingArguments(**cfg["training"])
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    # The collator pads the labels with -100 itself, so the EOS we append keeps its label.
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], attn_implementation="sdpa")
    model.config.use_cache = False

    def encode(batch):
        ids = tokenizer(batch["text"], add_special_tokens=False, truncation=True, max_length=cfg["max_length"] - 1)
        ids = [row + [tokenizer.eos_token_id] for row in ids["input_ids"]]
        return {"input_ids": ids, "attention_mask": [[1] * len(r) for r in ids], "labels": ids}

    data = load_dataset("json", data_files=cfg["train_file"], split="train")
    data = data.map(encode, batched=True, remove_columns=data.column_names)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100, pad_to_multiple_of=8),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "config.json")
