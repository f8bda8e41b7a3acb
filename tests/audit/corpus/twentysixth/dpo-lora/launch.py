"""Start a run from a YAML file: python launch.py configs/dpo.yaml"""
import shlex
import subprocess
import sys

import yaml

KEYS = ("model", "data", "output_dir", "beta", "lr", "batch_size", "accum", "epochs")


def main(path):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    flags = " ".join(f"--{k} {shlex.quote(str(cfg[k]))}" for k in KEYS if k in cfg)
    cmd = f"accelerate launch --multi_gpu --num_machines 1 --num_processes {cfg['num_gpus']} --mixed_precision bf16 dpo.py {flags}"
    print(cmd)
    subprocess.run(shlex.split(cmd), check=True)


if __name__ == "__main__":
    main(sys.argv[1])
