import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, Trainer, set_seed

from project.data import load


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg: DictConfig) -> None:
    set_seed(cfg.seed)
    args = instantiate(cfg.train)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, attn_implementation=cfg.model.attn, dtype=torch.bfloat16
    )
    Trainer(model=model, args=args, train_dataset=load(cfg)).train()


if __name__ == "__main__":
    main()
