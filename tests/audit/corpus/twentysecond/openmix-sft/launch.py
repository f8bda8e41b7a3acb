"""python launch.py configs/3b.yaml --gpus 4"""
import argparse
import subprocess

import yaml

KEYS = ["model_name_or_path", "train_file", "max_len", "output_dir", "learning_rate",
        "num_train_epochs", "batch_size", "accumulation"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    ap.add_argument("--gpus", type=int, default=4)
    ns = ap.parse_args()

    with open(ns.config) as f:
        conf = yaml.safe_load(f)

    cmd = ["accelerate", "launch", "--multi_gpu", "--num_processes", str(ns.gpus),
           "--mixed_precision", "bf16", "train.py"]
    for key in KEYS:
        if key in conf:
            cmd += [f"--{key}", str(conf[key])]
    subprocess.run(cmd, check=True)


if __name__ == "__main__":
    main()
