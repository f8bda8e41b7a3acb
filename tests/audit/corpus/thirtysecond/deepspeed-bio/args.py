"""Command line shared by prep.py and finetune.py."""
import argparse
import os

GLOBAL_BATCH = 64
MICRO = 2
GRAD_ACC = GLOBAL_BATCH // (MICRO * int(os.environ["WORLD_SIZE"]))


def str2bool(v):
    return str(v).lower() in ("1", "true", "yes", "y")


def get_parser():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B")
    p.add_argument("--corpus", default="data/case_reports.jsonl")
    p.add_argument("--cache", default="data/tokens")
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--output_dir", default="runs/case-reports")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--bf16", type=str2bool, default=False)
    p.add_argument("--deepspeed", default=None)
    p.add_argument("--local_rank", type=int, default=-1)
    p.add_argument("--seed", type=int, default=3)
    return p
