"""Reads a run config, derives the accumulation and starts `accelerate launch`.

    python scripts/launch.py configs/llama32_3b.yaml
"""
import os
import shlex
import subprocess
import sys

import yaml

WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
DS_CONFIG = "ds/zero2.json"


def flags(cfg):
    out = []
    for key, value in cfg.items():
        if not value:
            continue
        if value is True:
            out.append(f"--{key}")
        else:
            out += [f"--{key}", str(value)]
    return out


def main():
    cfg = yaml.safe_load(open(sys.argv[1]))
    total = cfg.pop("total_batch_size")
    gpus = cfg.pop("num_gpus")
    accum = total // (cfg["per_device_train_batch_size"] * WORLD_SIZE)
    cfg["gradient_accumulation_steps"] = accum

    cmd = [
        "accelerate", "launch",
        "--mixed_precision", "bf16",
        "--num_machines", "1",
        "--num_processes", str(gpus),
        "--use_deepspeed",
        "--deepspeed_config_file", DS_CONFIG,
        "finetune.py",
    ] + flags(cfg) + sys.argv[2:]
    print(shlex.join(cmd), flush=True)
    sys.exit(subprocess.call(cmd))


if __name__ == "__main__":
    main()
