"""python scripts/launch.py configs/sft_1b.yaml --gpus 8"""
import argparse
import subprocess

import yaml

PASSED = (
    "model_name_or_path",
    "train_file",
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "warmup_ratio",
    "num_train_epochs",
    "gradient_checkpointing",
    "seed",
)

ap = argparse.ArgumentParser()
ap.add_argument("config")
ap.add_argument("--gpus", type=int, default=8)
ap.add_argument("--resume_from")
ns = ap.parse_args()

with open(ns.config) as f:
    cfg = yaml.safe_load(f)

cmd = ["accelerate", "launch", "--num_machines", "1", "--mixed_precision", "bf16"]
cmd += ["--num_processes", str(ns.gpus)]
if ns.gpus > 1:
    cmd += ["--multi_gpu"]
cmd += ["finetune.py"]
for key in PASSED:
    if key in cfg:
        cmd += [f"--{key}", str(cfg[key])]
if ns.resume_from:
    cmd += ["--resume_from", ns.resume_from]
print(" ".join(cmd), flush=True)
subprocess.run(cmd, check=True)
