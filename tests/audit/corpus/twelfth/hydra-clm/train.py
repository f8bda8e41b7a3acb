from itertools import chain

import hydra
import torch
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)


def build_blocks(cfg: DictConfig, tokenizer):
    raw = load_dataset("json", data_files=cfg.data.path, split="train")
    size = cfg.data.block_size

    def tokenize(batch):
        return {"input_ids": [ids + [tokenizer.eos_token_id] for ids in tokenizer(batch["text"])["input_ids"]]}

    def chunk(batch):
        flat = list(chain.from_iterable(batch["input_ids"]))
        end = len(flat) // size * size
        blocks = [flat[i : i + size] for i in range(0, end, size)]
        return {"input_ids": blocks, "labels": [list(b) for b in blocks]}

    tokens = raw.map(tokenize, batched=True, num_proc=cfg.data.num_proc, remove_columns=raw.column_names)
    blocks = tokens.map(chunk, batched=True, num_proc=cfg.data.num_proc)
    return blocks.train_test_split(test_size=cfg.data.valid_fraction, seed=None)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        torch_dtype=getattr(torch, cfg.model.dtype),
    )
    splits = build_blocks(cfg, tokenizer)
    args = TrainingArguments(**OmegaConf.to_container(cfg.trainer, resolve=True))
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=splits["train"],
        eval_dataset=splits["test"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume)
    trainer.save_model()


if __name__ == "__main__":
    main()
