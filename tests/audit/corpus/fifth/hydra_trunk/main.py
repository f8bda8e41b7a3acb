import hydra
import torch
import torch.multiprocessing as mp
from omegaconf import DictConfig, OmegaConf

from trunk.trainer import Trainer


def worker(rank, cfg, world):
    Trainer(cfg, rank, world).fit()


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg: DictConfig):
    OmegaConf.resolve(cfg)
    world = torch.cuda.device_count()
    mp.spawn(worker, args=(cfg, world), nprocs=world)


if __name__ == "__main__":
    main()
