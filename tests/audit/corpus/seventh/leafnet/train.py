import json
import logging
import os
import time

import hydra
import timm
import torch
import torch.distributed as dist
import torch.nn.functional as F
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import save_file
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.scheduler import CosineLRScheduler
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets
from torchvision.transforms import v2

log = logging.getLogger(__name__)


def transforms(cfg, train):
    norm = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    if not train:
        return v2.Compose([v2.Resize(256), v2.CenterCrop(cfg.image_size), v2.PILToTensor(),
                           v2.ToDtype(torch.float32, scale=True), norm])
    steps = [v2.RandomResizedCrop(cfg.image_size, scale=(0.25, 1.0)), v2.RandomHorizontalFlip()]
    if cfg.randaugment:
        steps.append(v2.RandAugment(2, 9))
    return v2.Compose(steps + [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), norm])


def loader(cfg, split, batch_size, train, world):
    ds = datasets.ImageFolder(os.path.join(cfg.root, split), transforms(cfg, train))
    sampler = DistributedSampler(ds, shuffle=train, drop_last=train) if world > 1 else None
    return DataLoader(
        ds, batch_size=batch_size, sampler=sampler, shuffle=train and sampler is None,
        drop_last=train, num_workers=cfg.num_workers, pin_memory=cfg.pin_memory,
        persistent_workers=cfg.num_workers > 0,
    )


@torch.no_grad()
def evaluate(model, batches, device):
    model.eval()
    hit = torch.zeros((), device=device)
    seen = 0
    for x, y in batches:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hit += (model(x).argmax(-1) == y).sum()
        seen += len(y)
    model.train()
    return hit.item() / seen


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    world = int(os.environ.get("WORLD_SIZE", 1))
    rank, local = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
    if world > 1:
        dist.init_process_group("nccl")
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(cfg.seed + rank)
    if rank == 0:
        log.info(OmegaConf.to_yaml(cfg))

    t = cfg.trainer
    train = loader(cfg.data, "train", t.batch_size, True, world)
    val = loader(cfg.data, "val", t.batch_size, False, 1)

    model = timm.create_model(cfg.model.name, pretrained=cfg.model.pretrained,
                              num_classes=cfg.data.num_classes, drop_path_rate=cfg.model.drop_path)
    model.to(device)
    raw = model
    if cfg.compile:
        model = torch.compile(model)
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[local], find_unused_parameters=t.find_unused_parameters)

    opt = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr, weight_decay=cfg.optim.weight_decay,
                            fused=cfg.optim.fused)
    sched = CosineLRScheduler(opt, t_initial=t.epochs, lr_min=1e-6,
                              warmup_t=cfg.optim.warmup_epochs, warmup_lr_init=1e-6)
    mix = Mixup(mixup_alpha=t.mixup, label_smoothing=t.label_smoothing, num_classes=cfg.data.num_classes)
    criterion = SoftTargetCrossEntropy()

    out = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
    best = 0.0
    for epoch in range(t.epochs):
        sched.step(epoch)
        if isinstance(train.sampler, DistributedSampler):
            train.sampler.set_epoch(epoch)
        t0, total = time.perf_counter(), torch.zeros((), device=device)
        for i, (x, y) in enumerate(train):
            # overlaps with the compute of the step before
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            x, y = mix(x, y)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = criterion(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), t.clip)
            opt.step()
            opt.zero_grad(set_to_none=True)
            total += loss.detach()
        if rank == 0:
            mean = total.item() / len(train)
            dt = time.perf_counter() - t0
            acc = evaluate(raw, val, device)
            log.info("epoch %d loss %.4f acc %.4f  %.2f it/s", epoch, mean, acc, len(train) / dt)
            if acc > best:
                best = acc
                save_file(raw.state_dict(), os.path.join(out, "best.safetensors"))
                with open(os.path.join(out, "best.json"), "w") as fh:
                    json.dump({"epoch": epoch, "acc": acc}, fh)
        if world > 1:
            dist.barrier()
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
