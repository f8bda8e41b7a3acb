import logging
import math
import os

import hydra
import torch
from accelerate import Accelerator
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

from data import build_dataset, PadCollator

log = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    accelerator = Accelerator(
        gradient_accumulation_steps=cfg.train.accum,
        cpu=cfg.cpu,
    )
    if accelerator.is_main_process:
        log.info(OmegaConf.to_yaml(cfg))

    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    with accelerator.main_process_first():
        ds = build_dataset(cfg.data.path, tok, cfg.data.max_len, cfg.data.num_proc)
    loader = DataLoader(
        ds,
        batch_size=cfg.train.micro_batch,
        shuffle=True,
        collate_fn=PadCollator(tok.pad_token_id),
        num_workers=cfg.data.workers,
        pin_memory=True,
    )
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.train.lr, fused=not cfg.cpu)
    model, opt, loader = accelerator.prepare(model, opt, loader)

    updates = math.ceil(len(loader) / cfg.train.accum) * cfg.train.epochs
    sched = get_scheduler("cosine", opt, num_warmup_steps=cfg.train.warmup_steps, num_training_steps=updates)

    model.train()
    done = 0
    bar = tqdm(total=updates, disable=not accelerator.is_local_main_process)
    for epoch in range(cfg.train.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss / cfg.train.accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                if accelerator.sync_gradients:
                    sched.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                bar.update(1)
                if done % cfg.train.log_every == 0:
                    mean = accelerator.gather(loss.detach()).mean().item()
                    accelerator.print(f"update {done} loss {mean:.4f}")
        accelerator.wait_for_everyone()
        accelerator.unwrap_model(model).save_pretrained(
            os.path.join(cfg.out, f"epoch{epoch}"),
            is_main_process=accelerator.is_main_process,
            save_function=accelerator.save,
        )


if __name__ == "__main__":
    main()
