import os

import hydra
import torch
from omegaconf import DictConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from data import load_blocks


def training_arguments(cfg: DictConfig) -> TrainingArguments:
    t = cfg.trainer
    return TrainingArguments(
        output_dir=cfg.output_dir,
        num_train_epochs=t.epochs,
        per_device_train_batch_size=t.batch_size,
        per_device_eval_batch_size=t.batch_size,
        gradient_accumulation_steps=t.accum,
        learning_rate=t.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=t.warmup_ratio,
        weight_decay=t.weight_decay,
        optim="adamw_torch_fused",
        gradient_checkpointing=t.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        group_by_length=t.group_by_length,
        dataloader_num_workers=t.num_workers,
        evaluation_strategy="steps",
        eval_steps=t.eval_steps,
        save_steps=t.save_steps,
        save_total_limit=2,
        logging_steps=t.logging_steps,
        seed=cfg.seed,
        report_to="tensorboard",
    )


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.seed)
    args = training_arguments(cfg)
    tok = AutoTokenizer.from_pretrained(cfg.model_name)
    model = AutoModelForCausalLM.from_pretrained(cfg.model_name, torch_dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    with args.main_process_first():
        ds = load_blocks(tok, cfg.data)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["eval"],
        data_collator=default_data_collator,
        processing_class=tok,
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
