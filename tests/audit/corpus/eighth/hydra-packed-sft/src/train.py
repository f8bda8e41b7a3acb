import logging
import os

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from src.packing import PackedRows, collate, read_examples

log = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig) -> float:
    out = HydraConfig.get().runtime.output_dir
    set_seed(cfg.seed)
    log.info("\n%s", OmegaConf.to_yaml(cfg))

    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, torch_dtype=getattr(torch, cfg.model.dtype), attn_implementation=cfg.model.attn
    )
    model.config.use_cache = False

    rows = PackedRows(read_examples(cfg.data.path, tok), cfg.data.row_length, cfg.data.shuffle_seed)
    log.info("%d packed rows", len(rows))

    t = cfg.trainer
    args = TrainingArguments(
        output_dir=out,
        num_train_epochs=t.epochs,
        per_device_train_batch_size=t.batch_size,
        gradient_accumulation_steps=t.grad_accum,
        learning_rate=t.lr,
        lr_scheduler_type=t.scheduler,
        warmup_steps=t.warmup_steps,
        weight_decay=t.weight_decay,
        optim=t.optim,
        bf16=True,
        gradient_checkpointing=t.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=t.logging_steps,
        save_steps=t.save_steps,
        save_total_limit=2,
        dataloader_num_workers=t.num_workers,
        dataloader_persistent_workers=t.persistent_workers,
        dataloader_prefetch_factor=t.prefetch_factor,
        remove_unused_columns=False,
        seed=cfg.seed,
        report_to=["tensorboard"],
    )
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collate, processing_class=tok)

    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    if last:
        log.info("continuing from %s", last)
    result = trainer.train(resume_from_checkpoint=last)
    trainer.save_model(os.path.join(out, "final"))
    return float(result.training_loss)


if __name__ == "__main__":
    main()
