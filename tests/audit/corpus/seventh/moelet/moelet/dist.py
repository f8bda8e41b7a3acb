"""Process group for plain `srun` (one task a GPU, no torchrun)."""
import os
import subprocess

import torch
import torch.distributed as dist

RANK = int(os.environ.get("RANK", 0))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))


def first_host():
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        return "127.0.0.1"
    out = subprocess.check_output(["scontrol", "show", "hostnames", nodes], text=True)
    return out.split()[0]


def setup():
    if "SLURM_PROCID" in os.environ and "RANK" not in os.environ:
        os.environ["RANK"] = os.environ["SLURM_PROCID"]
        os.environ["WORLD_SIZE"] = os.environ["SLURM_NTASKS"]
        os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
    os.environ.setdefault("MASTER_ADDR", first_host())
    os.environ.setdefault("MASTER_PORT", "29511")
    local = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("nccl")
    return torch.device("cuda", local)


def teardown():
    if dist.is_initialized():
        dist.destroy_process_group()
