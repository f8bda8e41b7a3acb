import argparse
import dataclasses
import os

import torch
import torch.distributed as dist

from minifit.config import Config
from minifit.engine import Engine
from minifit.model import Transformer


def main():
    ap = argparse.ArgumentParser()
    for f in dataclasses.fields(Config):
        if f.type is not bool:
            ap.add_argument(f"--{f.name}", type=f.type, default=f.default)
    ap.add_argument("--checkpoint_blocks", action=argparse.BooleanOptionalAction, default=True)
    cfg = Config(**vars(ap.parse_args()))

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    model = Transformer(cfg)
    model.load_state_dict(torch.load(cfg.init_from, map_location="cpu", weights_only=True))
    engine = Engine(cfg, model)
    engine.maybe_resume()
    engine.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
