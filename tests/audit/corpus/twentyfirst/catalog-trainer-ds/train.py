import logging
from dataclasses import dataclass, field
from typing import Optional

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)

logger = logging.getLogger("catalog")


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="Qwen/Qwen2.5-0.5B")


@dataclass
class DataArguments:
    train_file: str = field(default="data/catalog.jsonl")
    max_len: int = field(default=512)
    eval_share: float = field(default=0.02)
    limit: Optional[int] = field(default=None)


def encode_fn(tok, max_len):
    def encode(row):
        head = tok(f"Product: {row['title']}\nDescription:", add_special_tokens=False)["input_ids"]
        tail = tok(" " + row["description"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
        ids = (head + tail)[:max_len]
        labels = ([-100] * len(head) + tail)[:max_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return encode


def main():
    margs, dargs, targs = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(targs.seed)
    logging.basicConfig(level=logging.INFO)

    tok = AutoTokenizer.from_pretrained(margs.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(margs.model_name_or_path, torch_dtype="auto")
    if targs.gradient_checkpointing:
        model.config.use_cache = False

    raw = load_dataset("json", data_files=dargs.train_file, split="train")
    if dargs.limit:
        raw = raw.select(range(dargs.limit))
    ds = raw.map(
        encode_fn(tok, dargs.max_len),
        remove_columns=raw.column_names,
        load_from_cache_file=False,
    )
    ds = ds.train_test_split(test_size=dargs.eval_share, seed=targs.seed)

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()
    logger.info("saved to %s", targs.output_dir)


if __name__ == "__main__":
    main()
