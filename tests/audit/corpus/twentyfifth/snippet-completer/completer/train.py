import sys

import torch
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from completer.data import load


def build_args(t):
    return SFTConfig(
        output_dir=t.output_dir,
        max_length=t.max_length,
        packing=t.packing,
        eval_packing=False,
        per_device_train_batch_size=t.per_device_train_batch_size,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=t.gradient_accumulation_steps,
        num_train_epochs=t.epochs,
        learning_rate=t.learning_rate,
        warmup_steps=t.warmup_steps,
        dataloader_num_workers=t.num_workers,
        dataloader_prefetch_factor=t.prefetch_factor,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=5,
        report_to="none",
        seed=t.seed,
    )


def main():
    cfg = OmegaConf.load("conf/base.yaml")
    cfg = OmegaConf.merge(cfg, OmegaConf.from_cli(sys.argv[1:]))
    print(OmegaConf.to_yaml(cfg))

    args = build_args(cfg.train)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        dtype=torch.float32,
        attn_implementation=cfg.model.attn_implementation,
    )
    train_ds, eval_ds = load(cfg.data, cfg.train.seed)
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
