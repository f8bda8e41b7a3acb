"""A launcher is given flags by the names that another one has for them: its parser stops."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.setting import Setting

_ANOTHERS: Mapping[str, Mapping[str, str]] = {
    "accelerate launch": {
        "nproc_per_node": "--num_processes",
        "num_gpus": "--num_processes",
        "nnodes": "--num_machines",
        "num_nodes": "--num_machines",
        "node_rank": "--machine_rank",
        "master_addr": "--main_process_ip",
        "master_port": "--main_process_port",
    },
    "torchrun": {
        "num_processes": "--nproc_per_node",
        "num_gpus": "--nproc_per_node",
        "num_machines": "--nnodes",
        "num_nodes": "--nnodes",
        "machine_rank": "--node_rank",
        "main_process_port": "--master_port",
        "main_process_ip": "--master_addr",
        "config_file": "",
        "mixed_precision": "",
        "multi_gpu": "",
    },
    "deepspeed": {
        "nproc_per_node": "--num_gpus",
        "num_processes": "--num_gpus",
        "nnodes": "--num_nodes",
        "num_machines": "--num_nodes",
        "main_process_port": "--master_port",
        "config_file": "",
        "mixed_precision": "",
    },
}
"""Names that a launcher has not, in no release, and its own for the same: the parsers of accelerate 1.6 and 1.15
(commands/launch.py), PyTorch 2 (distributed/run.py) and DeepSpeed 0.16 (launcher/runner.py)."""


def flags_of_another_launcher(launch: Launch) -> Iterator[tuple[str, Setting, str]]:
    """The launcher, its flag, and what it calls that itself; empty: nothing."""
    name = next((one for one in _ANOTHERS if launch.launcher == one or launch.launcher.endswith(f" {one}")), "")
    for flag, own in _ANOTHERS.get(name, {}).items():
        if flag in launch.launcher_flags:
            yield name, launch.launcher_flags[flag], own
