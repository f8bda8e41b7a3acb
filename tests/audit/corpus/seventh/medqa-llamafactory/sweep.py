#!/usr/bin/env python3
"""Learning-rate sweep: writes one YAML per point and runs llamafactory-cli.

    FORCE_TORCHRUN=1 python sweep.py configs/medqa_sft.yaml --lr 5e-5 1e-4 2e-4
"""
import argparse
import os
import pathlib
import subprocess

import yaml

# what a point of the sweep is made of
KEYS = [
    "model_name_or_path", "trust_remote_code", "flash_attn",
    "stage", "do_train", "finetuning_type", "lora_rank", "lora_target",
    "dataset", "dataset_dir", "template", "cutoff_len", "packing",
    "neat_packing", "overwrite_cache", "preprocessing_num_workers",
    "dataloader_num_workers", "logging_steps", "save_steps", "plot_loss",
    "report_to", "per_device_train_batch_size", "gradient_accumulation_steps",
    "num_train_epochs", "lr_scheduler_type", "bf16", "ddp_timeout",
    "val_size", "per_device_eval_batch_size", "eval_strategy", "eval_steps",
    "seed",
]


def point(base, lr, root):
    cfg = {k: base[k] for k in KEYS if k in base}
    cfg["learning_rate"] = lr
    cfg["output_dir"] = str(root / f"lr{lr:g}")
    return cfg


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    ap.add_argument("--lr", type=float, nargs="+", required=True)
    ap.add_argument("--root", default="saves/sweep")
    ap.add_argument("--dry-run", action="store_true")
    args = ap.parse_args()

    base = yaml.safe_load(open(args.config))
    root = pathlib.Path(args.root)
    root.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, FORCE_TORCHRUN="1")

    for lr in args.lr:
        cfg = point(base, lr, root)
        path = root / f"lr{lr:g}.yaml"
        path.write_text(yaml.safe_dump(cfg, sort_keys=False))
        print("==", path)
        if args.dry_run:
            continue
        subprocess.run(["llamafactory-cli", "train", str(path)], env=env, check=True)


if __name__ == "__main__":
    main()
