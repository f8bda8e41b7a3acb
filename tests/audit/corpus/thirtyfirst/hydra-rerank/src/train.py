import glob
import logging
import os
import re

import hydra
import torch
import torch.distributed as dist
import torch.nn.functional as F
from omegaconf import DictConfig, OmegaConf
from sklearn.metrics import average_precision_score
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

from data import PairCollator, PairDataset

log = logging.getLogger(__name__)
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))


def latest(folder):
    found = glob.glob(os.path.join(folder, "state-*.pt"))
    return max(found, key=lambda f: int(re.search(r"state-(\d+)", f).group(1)), default=None)


def loader_for(cfg, tok, path, train):
    ds = PairDataset(path)
    sampler = DistributedSampler(ds, shuffle=train, drop_last=train) if WORLD_SIZE > 1 and train else None
    return DataLoader(
        ds, batch_size=cfg.train.batch_size, sampler=sampler, shuffle=train and sampler is None,
        collate_fn=PairCollator(tok, cfg.data.max_length), num_workers=cfg.data.num_workers,
        pin_memory=True, drop_last=train,
    )


@torch.inference_mode()
def dev_ap(model, loader, device):
    model.eval()
    scores, labels = [], []
    for batch in loader:
        labels.append(batch.pop("labels"))
        out = model(**{k: v.to(device, non_blocking=True) for k, v in batch.items()})
        scores.append(out.logits.softmax(-1)[:, 1].float())
    model.train()
    return average_precision_score(torch.cat(labels).numpy(), torch.cat(scores).cpu().numpy())


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    if WORLD_SIZE > 1:
        dist.init_process_group("nccl")
    device = torch.device("cuda", LOCAL_RANK)
    torch.cuda.set_device(device)
    lead = LOCAL_RANK == 0
    if lead:
        log.info(OmegaConf.to_yaml(cfg))

    tok = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForSequenceClassification.from_pretrained(cfg.model.name, num_labels=2, dtype=torch.float32)
    model.to(device)
    net = DDP(model, device_ids=[LOCAL_RANK]) if WORLD_SIZE > 1 else model

    train_loader = loader_for(cfg, tok, cfg.data.train, True)
    dev_loader = loader_for(cfg, tok, cfg.data.dev, False)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.optim.learning_rate,
                            weight_decay=cfg.optim.weight_decay, fused=True)
    total = cfg.train.epochs * len(train_loader)
    sched = get_linear_schedule_with_warmup(opt, int(cfg.optim.warmup_ratio * total), total)

    step = 0
    last = latest(cfg.run_dir)
    if last:
        state = torch.load(last, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        step = state["step"]
        log.info("resumed from %s", last)

    first = step // len(train_loader)
    for epoch in range(first, cfg.train.epochs):
        if isinstance(train_loader.sampler, DistributedSampler):
            train_loader.sampler.set_epoch(epoch)
        skip = step - epoch * len(train_loader) if epoch == first else 0
        for i, batch in enumerate(train_loader):
            if i < skip:
                continue
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            labels = batch.pop("labels")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=cfg.train.bf16):
                logits = net(**batch).logits
            loss = F.cross_entropy(logits.float(), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if lead and step % cfg.train.log_every == 0:
                log.info("epoch %d step %d/%d loss %.4f", epoch, step, total, loss.item())
            if lead and step % cfg.train.save_every == 0:
                torch.save({"model": model.state_dict(), "opt": opt.state_dict(),
                            "sched": sched.state_dict(), "step": step},
                           os.path.join(cfg.run_dir, f"state-{step}.pt"))
        if lead:
            log.info("epoch %d dev AP %.4f", epoch, dev_ap(model, dev_loader, device))
        if WORLD_SIZE > 1:
            dist.barrier()
    if lead:
        model.save_pretrained(os.path.join(cfg.run_dir, "final"))
        tok.save_pretrained(os.path.join(cfg.run_dir, "final"))


if __name__ == "__main__":
    main()
