"""python -m helpdesk.train configs/xyz.yaml"""
import sys
from types import SimpleNamespace

import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from helpdesk.data import Collator, build


def read_config(path: str) -> SimpleNamespace:
    with open(path) as fh:
        raw = yaml.safe_load(fh)
    return SimpleNamespace(**{k: SimpleNamespace(**v) for k, v in raw.items()})


def training_arguments(cfg: SimpleNamespace) -> TrainingArguments:
    t = cfg.train
    return TrainingArguments(
        output_dir=t.output_dir,
        num_train_epochs=t.epochs,
        learning_rate=t.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=t.warmup_ratio,
        per_device_train_batch_size=t.batch_size,
        per_device_eval_batch_size=t.batch_size,
        gradient_accumulation_steps=t.grad_accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        group_by_length=True,  # similar lengths together, less padding
        eval_strategy="steps",
        eval_steps=t.eval_steps,
        save_steps=t.eval_steps,
        save_total_limit=t.save_total_limit,
        logging_steps=t.logging_steps,
        remove_unused_columns=False,
        dataloader_num_workers=4,
        seed=t.seed,
        report_to=["wandb"],
        run_name="hda-" + t.output_dir.rstrip("/").split("/")[-1],
    )


def main() -> None:
    cfg = read_config(sys.argv[1])
    set_seed(cfg.train.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    # weights stay fp32 as master copy, autocast does the rest
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, torch_dtype=torch.float32, attn_implementation=cfg.model.attn
    )
    model.config.use_cache = False

    train = build(cfg.data.train, tokenizer, cfg.data.max_length, cfg.data.num_proc, "train")
    valid = build(cfg.data.valid, tokenizer, cfg.data.max_length, cfg.data.num_proc, "valid")

    trainer = Trainer(
        model=model,
        args=training_arguments(cfg),
        train_dataset=train,
        eval_dataset=valid,
        data_collator=Collator(tokenizer.pad_token_id, cfg.data.max_length),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(cfg.train.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
