import sys

import torch
from omegaconf import OmegaConf
from safetensors.torch import save_model
from torch.utils.tensorboard import SummaryWriter

from tinyformer.data import make_loader
from tinyformer.model import TinyFormer


def main():
    cfg = OmegaConf.merge(OmegaConf.load("conf.yaml"), OmegaConf.from_cli(sys.argv[1:]))
    torch.manual_seed(cfg.seed)
    torch.set_float32_matmul_precision("high")

    loader = make_loader(cfg)
    model = TinyFormer(**cfg.model).cuda()
    opt = torch.optim.AdamW(
        model.parameters(), lr=cfg.train.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    total = cfg.train.epochs * len(loader)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.train.lr, total_steps=total)
    writer = SummaryWriter(cfg.log_dir)

    step = 0
    for _ in range(cfg.train.epochs):
        for batch in loader:
            ids, doc_ids, pos, labels = (t.cuda(non_blocking=True) for t in batch)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(ids, doc_ids, pos, labels)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 50 == 0:
                writer.add_scalar("loss", loss.item(), step)
                writer.add_scalar("grad_norm", norm.item(), step)
            if step % 2000 == 0:
                save_model(model, f"{cfg.log_dir}/step{step}.safetensors")

    save_model(model, f"{cfg.log_dir}/final.safetensors")


if __name__ == "__main__":
    main()
