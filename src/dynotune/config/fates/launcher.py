"""The keys that `trl sft` hands to `accelerate launch`, and torchrun's: one process is accepted, more are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.config.fates.fate import Fate, refused, superseded
from dynotune.config.fates.training import LATER_SHARDING, ONE_PROCESS

MORE = "training in more than one process is later work"
MORE_INSTEAD = "set it to 1 or remove it; to choose a GPU write `env: {CUDA_VISIBLE_DEVICES: 0}`"
ONE_GPU = "remove it and train on one GPU"
BF16 = "`bf16` decides, in TRL too"
ANY_ONE = (None, 1, 0, "")

SINGLE_CONFIGS = frozenset({"single_gpu"})
"""Launcher files that TRL ships by name and that start one process."""


def _starts_one_process(value: Any) -> bool:
    """Whether an Accelerate configuration, by TRL's name or as a file, asks for one process without sharding."""
    if not isinstance(value, str) or not value:
        return value is None or value == ""
    if value in SINGLE_CONFIGS:
        return True
    path = Path(value)
    if not path.is_file():
        return False
    from dynotune.config.reading.files import read_file

    given = read_file(path).values
    return str(given.get("distributed_type", "NO")).upper() == "NO" and str(given.get("num_machines", 1)) == "1"


def _count() -> Fate:
    return refused(MORE, MORE_INSTEAD, silent=ANY_ONE)


_ACCELERATE_FILE = refused(
    "it is not a file or TRL name of an Accelerate configuration that starts one process; sharding and more processes "
    "are later work",
    "remove it, or use `single_gpu`",
    noop=_starts_one_process,
)

LAUNCHER: Mapping[str, Fate] = {
    "accelerate_config": _ACCELERATE_FILE,
    "config_file": _ACCELERATE_FILE,
    "num_processes": _count(),
    "num_machines": _count(),
    "nproc_per_node": _count(),
    "nnodes": _count(),
    "gpu_ids": refused(
        "one process trains on the first visible GPU",
        "choose it with `env: {CUDA_VISIBLE_DEVICES: 1}`",
        silent=("all", 0, "0", None),
    ),
    "distributed_type": refused(LATER_SHARDING, ONE_GPU, silent=("NO", "no", False, None)),
    "multi_gpu": refused(MORE, ONE_GPU, default=False),
    "mixed_precision": superseded(
        BF16,
        default="no",
        silent=("no", False, None),
        refuses={
            "fp16": "float16 needs a loss scale that changes the updates; set `bf16: true`",
            "fp8": "FP8 is later work; remove it",
        },
    ),
    "downcast_bf16": refused("TPUs are not supported", "remove it", default="no", silent=("no", False, None)),
    "cpu": refused("transformers' name is the one that counts", "write `use_cpu: true`", default=False),
    "machine_rank": refused(MORE, "remove it", silent=(0, None)),
    "node_rank": refused(MORE, "remove it", silent=(0, None)),
    "main_process_ip": superseded(ONE_PROCESS),
    "main_process_port": superseded(ONE_PROCESS),
    "master_addr": superseded(ONE_PROCESS),
    "master_port": superseded(ONE_PROCESS),
    "rdzv_backend": superseded(ONE_PROCESS, default="static", silent=("static", None)),
    "rdzv_conf": superseded(ONE_PROCESS),
    "rdzv_endpoint": superseded(ONE_PROCESS),
    "same_network": superseded(ONE_PROCESS, silent=(True, False, None)),
    "max_restarts": superseded("a run that stopped is resumed with `resume_from_checkpoint: true`", default=0),
    "monitor_interval": superseded(ONE_PROCESS),
    "role": superseded(ONE_PROCESS),
    "tee": superseded(ONE_PROCESS),
    "log_dir": superseded("everything a run writes is in its run folder"),
    "main_training_function": superseded("there is no launcher", default="main", silent=("main", None)),
    "compute_environment": refused(
        "only the local machine is supported", "remove it", default="LOCAL_MACHINE", silent=("LOCAL_MACHINE", None)
    ),
    "enable_cpu_affinity": superseded("the operating system places the process", default=False),
    "num_cpu_threads_per_process": superseded("write `env: {OMP_NUM_THREADS: 4}` to set the number of threads"),
    "quiet": superseded("there is no launcher", default=False),
    "module": refused("there is no launcher", "remove it", default=False),
    "no_python": refused("there is no launcher", "remove it", default=False),
    "dynamo_backend": refused(
        "compilation is a speed-up that this version lacks", "remove it", default="no", silent=("no", "NO", False, None)
    ),
    "use_deepspeed": refused(LATER_SHARDING, ONE_GPU, default=False),
    "use_fsdp": refused(LATER_SHARDING, ONE_GPU, default=False),
    "use_megatron_lm": refused(LATER_SHARDING, ONE_GPU, default=False),
    "use_parallelism_config": refused(LATER_SHARDING, ONE_GPU, default=False),
    "zero_stage": refused(LATER_SHARDING, ONE_GPU),
    "zero3_init_flag": refused(LATER_SHARDING, ONE_GPU, default=False),
    "zero3_save_16bit_model": refused(LATER_SHARDING, ONE_GPU, default=False),
    "offload_optimizer_device": refused(LATER_SHARDING, ONE_GPU, silent=("none", None)),
    "offload_param_device": refused(LATER_SHARDING, ONE_GPU, silent=("none", None)),
    "gradient_clipping": refused("it is DeepSpeed's name", "write `max_grad_norm`"),
    "offload_optimizer_nvme_path": refused(LATER_SHARDING, ONE_GPU),
    "offload_param_nvme_path": refused(LATER_SHARDING, ONE_GPU),
    "mpirun_hostfile": refused(MORE, "remove it"),
    "aws_access_key_id": refused("only the local machine is supported", "remove it"),
    "aws_secret_access_key": refused("only the local machine is supported", "remove it"),
    "vm": refused("TPUs are not supported", "remove it"),
    "tpu": refused("TPUs are not supported", "remove it", default=False),
    "tpu_env": refused("TPUs are not supported", "remove it", default=[]),
    "tpu_use_cluster": refused("TPUs are not supported", "remove it", default=False),
    "tpu_use_sudo": refused("TPUs are not supported", "remove it", default=False),
}

PREFIXES: Mapping[str, Fate] = {
    "fsdp_": refused(LATER_SHARDING, ONE_GPU),
    "deepspeed_": refused(LATER_SHARDING, ONE_GPU),
    "megatron_lm_": refused(LATER_SHARDING, ONE_GPU),
    "parallelism_config_": refused(LATER_SHARDING, ONE_GPU),
    "fp8_": refused("FP8 is later work", "remove it"),
    "dynamo_": refused(
        "compilation is a speed-up that this version lacks", "remove it", silent=("no", "NO", False, None)
    ),
    "tpu_": refused("TPUs are not supported", "remove it"),
}
"""Families of launcher keys with one fate."""


def launcher_fate(key: str) -> Fate | None:
    """The fate of a launcher key, or None if no launcher has it."""
    if key in LAUNCHER:
        return LAUNCHER[key]
    return next((fate for prefix, fate in PREFIXES.items() if key.startswith(prefix)), None)
