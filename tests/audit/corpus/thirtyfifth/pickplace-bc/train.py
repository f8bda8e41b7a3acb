from pathlib import Path

import hydra
import torch
import torch.nn.functional as F
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch.utils.data import DataLoader

from bc.data import Episodes
from bc.model import ChunkPolicy


class Trainer:
    def __init__(self, cfg, out):
        self.cfg, self.out = cfg, out
        self.device = torch.device("cuda")
        train = Episodes(cfg.data.root, "train", cfg.model.horizon, cfg.data.limit)
        valid = Episodes(cfg.data.root, "valid", cfg.model.horizon, cfg.data.limit)
        options = dict(batch_size=cfg.data.batch_size, num_workers=cfg.data.num_workers, pin_memory=True)
        self.train_loader = DataLoader(train, shuffle=True, drop_last=True, **options)
        self.valid_loader = DataLoader(valid, **options)
        self.model = ChunkPolicy(**cfg.model).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=cfg.optim.lr, weight_decay=cfg.optim.weight_decay, fused=True
        )
        updates = cfg.trainer.epochs * (len(self.train_loader) // cfg.trainer.accumulate)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=cfg.optim.lr, total_steps=updates)

    def loss(self, frames, actions):
        frames = frames.to(self.device, non_blocking=True)
        actions = actions.to(self.device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = self.model(frames)
        return F.l1_loss(predicted.float(), actions)

    def epoch(self, number):
        self.model.train()
        accumulate = self.cfg.trainer.accumulate
        for i, (frames, actions) in enumerate(self.train_loader):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(frames, actions)
            (loss / accumulate).backward()
            if (i + 1) % accumulate == 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.trainer.clip)
                self.optimizer.step()
            if i % self.cfg.trainer.log_every == 0:
                print(f"epoch {number} batch {i} l1 {loss.item():.4f}", flush=True)
            torch.cuda.empty_cache()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = torch.zeros((), device=self.device)
        for frames, actions in self.valid_loader:
            total += self.loss(frames, actions)
        return (total / len(self.valid_loader)).item()

    def fit(self):
        best = float("inf")
        for number in range(self.cfg.trainer.epochs):
            self.epoch(number)
            self.scheduler.step()
            score = self.validate()
            print(f"epoch {number} valid l1 {score:.4f}", flush=True)
            if score < best:
                best = score
                torch.save(self.model, self.out / "best.pt")


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    torch.manual_seed(cfg.seed)
    Trainer(cfg, Path(HydraConfig.get().runtime.output_dir)).fit()


if __name__ == "__main__":
    main()
