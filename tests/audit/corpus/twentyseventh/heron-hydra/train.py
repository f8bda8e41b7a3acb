import os

import hydra
import numpy as np
from datasets import load_dataset
from omegaconf import DictConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import get_last_checkpoint


def accuracy(pred):
    logits, labels = pred
    guess = np.argmax(logits[:, :-1], axis=-1)
    gold = labels[:, 1:]
    return {"token_accuracy": float((guess == gold).mean())}


def chunk(tok, block):
    def fn(rows):
        ids = [i for t in tok(rows["text"])["input_ids"] for i in t + [tok.eos_token_id]]
        n = len(ids) // block * block
        parts = [ids[i : i + block] for i in range(0, n, block)]
        return {"input_ids": parts, "labels": [list(p) for p in parts]}

    return fn


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    t = cfg.train
    args = TrainingArguments(
        output_dir=cfg.out,
        per_device_train_batch_size=t.per_device_batch_size,
        per_device_eval_batch_size=t.per_device_batch_size,
        gradient_accumulation_steps=t.accum,
        learning_rate=t.lr,
        num_train_epochs=t.epochs,
        group_by_length=t.group_by_length,
        dataloader_num_workers=t.workers,
        deepspeed="ds_zero.json",
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=25,
        report_to="none",
        seed=t.seed,
    )
    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(cfg.model)
    model.config.use_cache = False

    ds = load_dataset("text", data_files=cfg.data, split="train").train_test_split(0.01, seed=t.seed)
    with args.main_process_first():
        ds = ds.map(chunk(tok, cfg.block), batched=True, remove_columns=["text"])

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        data_collator=default_data_collator,
        processing_class=tok,
        compute_metrics=accuracy,
    )
    last = get_last_checkpoint(cfg.out) if os.path.isdir(cfg.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
