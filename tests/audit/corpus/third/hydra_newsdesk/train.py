import json
import os

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


class Articles(Dataset):
    """Article body -> headline. The file is 40 GB: rows are found by byte offset (make_offsets.py writes the index)."""

    def __init__(self, path, tokenizer, max_len):
        self.path, self.tokenizer, self.max_len = path, tokenizer, max_len
        self.offsets = np.load(path + ".offsets.npy", mmap_mode="r")

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, index):
        with open(self.path, "rb") as handle:
            handle.seek(int(self.offsets[index]))
            row = json.loads(handle.readline())
        body = self.tokenizer(row["body"] + "\n\nHeadline:", truncation=True, max_length=self.max_len - 64)["input_ids"]
        title = self.tokenizer(" " + row["headline"], add_special_tokens=False)["input_ids"][:63]
        title.append(self.tokenizer.eos_token_id)
        return {
            "input_ids": body + title,
            "attention_mask": [1] * (len(body) + len(title)),
            "labels": [-100] * len(body) + title,
        }


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(OmegaConf.to_yaml(cfg, resolve=True))

    arguments = TrainingArguments(
        output_dir=cfg.output_dir,
        learning_rate=cfg.train.lr,
        weight_decay=cfg.train.weight_decay,
        num_train_epochs=cfg.train.epochs,
        per_device_train_batch_size=cfg.train.micro_batch,
        gradient_accumulation_steps=cfg.train.accumulation,
        warmup_steps=cfg.train.warmup_steps,
        lr_scheduler_type="cosine",
        dataloader_num_workers=cfg.train.loader_workers,
        logging_steps=cfg.train.log_every,
        save_steps=cfg.train.save_every,
        save_total_limit=2,
        ddp_find_unused_parameters=False,
        seed=cfg.seed,
    )

    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    tokenizer.pad_token = tokenizer.unk_token
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Articles(cfg.data.train_file, tokenizer, cfg.data.max_len),
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        processing_class=tokenizer,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
