"""The keys that `trl sft` hands to `accelerate launch`, and torchrun's: the number of processes is honoured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynotune.config.fates.fate import Fate, honoured, is_empty, refused, superseded
from dynotune.config.fates.training import LATER_SHARDING, WHOLE_MODELS

MACHINES = "training on more than one machine is later work"
BF16 = "`bf16` decides, in TRL too"
ANY_ONE = (None, 1, 0, "")
FREE_PORT = "the processes of one machine meet at a port that is free"
LAUNCHED = "`--gpus` starts the processes"

SHIPPED = {"single_gpu": 1, "multi_gpu": 8}
"""Launcher files that TRL ships by name and that do not shard, with the processes that they start."""


def _count(value: Any) -> Any:
    """The number of processes; 0 and empty are unset."""
    if is_empty(value) or value in (0, "0"):
        return None
    if isinstance(value, str) and not value.strip().isdecimal():
        raise ValueError("write the number of GPUs")
    return value


def _count_of_file(value: Any) -> int | None:
    """The processes that an Accelerate configuration starts, by TRL's name or as a file."""
    if is_empty(value):
        return None
    if value in SHIPPED:
        return SHIPPED[value]
    path = Path(str(value))
    if not path.is_file():
        raise ValueError(
            f"it is neither a file nor one of TRL's configurations that do not shard ({', '.join(SHIPPED)}); sharding is"
            " later work. Write `gpus`"
        )
    from dynotune.config.reading.files import read_file

    given = read_file(path).values
    kind = str(given.get("distributed_type", "NO")).upper()
    if str(given.get("num_machines", 1)) != "1":
        raise ValueError(f"it asks for {given['num_machines']} machines, and {MACHINES}. Write `gpus`")
    if kind == "NO":
        return 1
    if kind != "MULTI_GPU":
        raise ValueError(f"it asks for `distributed_type: {kind}`: {LATER_SHARDING}. Write `gpus`")
    count = _count(given.get("num_processes"))
    return None if count is None else int(count)


_COUNT = honoured("is `gpus`", key="gpus", value=_count)
_ACCELERATE_FILE = honoured(
    "its number of processes is `gpus`; a file that shards, or asks for several machines, is refused",
    key="gpus",
    value=_count_of_file,
    yields=True,
)

LAUNCHER: Mapping[str, Fate] = {
    "accelerate_config": _ACCELERATE_FILE,
    "config_file": _ACCELERATE_FILE,
    "num_processes": _COUNT,
    "num_machines": refused(MACHINES, "remove it", silent=ANY_ONE),
    "nproc_per_node": _COUNT,
    "nnodes": refused(MACHINES, "remove it", silent=(*ANY_ONE, "1:1")),
    "gpu_ids": refused(
        "the first visible GPUs are taken",
        "choose them with `env: {CUDA_VISIBLE_DEVICES: '2,3'}`, and their number with `gpus`",
        silent=("all", 0, "0", None),
    ),
    "distributed_type": refused(LATER_SHARDING, WHOLE_MODELS, silent=("NO", "no", "MULTI_GPU", False, None)),
    "multi_gpu": superseded("`gpus`, or `num_processes`, decides", default=False),
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
    "machine_rank": refused(MACHINES, "remove it", silent=(0, None)),
    "node_rank": refused(MACHINES, "remove it", silent=(0, None)),
    "main_process_ip": superseded(FREE_PORT),
    "main_process_port": superseded(FREE_PORT),
    "master_addr": superseded(FREE_PORT),
    "master_port": superseded(FREE_PORT),
    "rdzv_backend": superseded(FREE_PORT, default="static", silent=("static", None)),
    "rdzv_conf": superseded(FREE_PORT),
    "rdzv_endpoint": superseded(FREE_PORT),
    "same_network": superseded(FREE_PORT, silent=(True, False, None)),
    "max_restarts": superseded("a run that stopped is resumed with `resume_from_checkpoint: true`", default=0),
    "monitor_interval": superseded("a process that ended is noticed within a second"),
    "role": superseded(LAUNCHED),
    "tee": superseded("each process but the first writes `logs/rank-N.log` in the run folder"),
    "log_dir": superseded("everything a run writes is in its run folder"),
    "main_training_function": superseded(LAUNCHED, default="main", silent=("main", None)),
    "compute_environment": refused(
        "only the local machine is supported", "remove it", default="LOCAL_MACHINE", silent=("LOCAL_MACHINE", None)
    ),
    "enable_cpu_affinity": superseded("the operating system places the process", default=False),
    "num_cpu_threads_per_process": superseded("write `env: {OMP_NUM_THREADS: 4}` to set the number of threads"),
    "quiet": superseded(LAUNCHED, default=False),
    "module": refused(LAUNCHED, "remove it", default=False),
    "no_python": refused(LAUNCHED, "remove it", default=False),
    "dynamo_backend": refused(
        "compilation is a speed-up that this version lacks", "remove it", default="no", silent=("no", "NO", False, None)
    ),
    "use_deepspeed": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "use_fsdp": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "use_megatron_lm": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "use_parallelism_config": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "zero_stage": refused(LATER_SHARDING, WHOLE_MODELS),
    "zero3_init_flag": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "zero3_save_16bit_model": refused(LATER_SHARDING, WHOLE_MODELS, default=False),
    "offload_optimizer_device": refused(LATER_SHARDING, WHOLE_MODELS, silent=("none", None)),
    "offload_param_device": refused(LATER_SHARDING, WHOLE_MODELS, silent=("none", None)),
    "gradient_clipping": refused("it is DeepSpeed's name", "write `max_grad_norm`"),
    "offload_optimizer_nvme_path": refused(LATER_SHARDING, WHOLE_MODELS),
    "offload_param_nvme_path": refused(LATER_SHARDING, WHOLE_MODELS),
    "mpirun_hostfile": refused(MACHINES, "remove it"),
    "aws_access_key_id": refused("only the local machine is supported", "remove it"),
    "aws_secret_access_key": refused("only the local machine is supported", "remove it"),
    "vm": refused("TPUs are not supported", "remove it"),
    "tpu": refused("TPUs are not supported", "remove it", default=False),
    "tpu_env": refused("TPUs are not supported", "remove it", default=[]),
    "tpu_use_cluster": refused("TPUs are not supported", "remove it", default=False),
    "tpu_use_sudo": refused("TPUs are not supported", "remove it", default=False),
}

PREFIXES: Mapping[str, Fate] = {
    "fsdp_": refused(LATER_SHARDING, WHOLE_MODELS),
    "deepspeed_": refused(LATER_SHARDING, WHOLE_MODELS),
    "megatron_lm_": refused(LATER_SHARDING, WHOLE_MODELS),
    "parallelism_config_": refused(LATER_SHARDING, WHOLE_MODELS),
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
