"""The machine and the packages: what `dynotune env` shows and `environment.json` in the run folder keeps.

No environment variables, paths, host names or user names: the file travels with a model.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PACKAGES = (
    "dynotune",
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "tokenizers",
    "safetensors",
    "datasets",
    "pyarrow",
    "numpy",
    "pydantic",
    "huggingface_hub",
    "sentencepiece",
    "triton",
    "trl",
    "wandb",
    "tensorboard",
    "mlflow",
    "mlflow-skinny",
    "trackio",
)


def collect(output_dir: Path | None = None, *, try_accelerators: bool = False) -> dict[str, Any]:
    """What this machine is and has, as plain values for JSON. Sizes are in bytes.

    Args:
        output_dir: also report the free disk where this folder is or will be.
        try_accelerators: run each optional accelerator once (seconds to a minute); otherwise that part is absent.
    """
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "memory": _memory(),
        "disk": _disk(output_dir),
        "packages": installed(PACKAGES),
        "torch": _torch(),
        "gpus": _gpus(),
        "driver": _driver(),
    }
    if try_accelerators:
        from dynotune.accelerators import try_all

        found["accelerators"] = try_all("cuda" if found["gpus"] else "cpu")
    return found


def _cpu() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": cpu_model(), "cores": usable}


def cpu_model() -> str:
    """The processor's name, or `unknown`."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory() -> dict[str, int | None]:
    import psutil

    memory = psutil.virtual_memory()
    return {"total": memory.total, "available": memory.available, "container_limit": _container_limit()}


def _container_limit() -> int | None:
    # A container sees the host's memory and is killed at its own limit.
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return int(text) if text.isdigit() else None


def _disk(output_dir: Path | None) -> dict[str, int]:
    from huggingface_hub.constants import HF_HOME

    places = {"current_folder": Path.cwd(), "hugging_face_cache": Path(HF_HOME)}
    if output_dir is not None:
        places["output_dir"] = output_dir
    return {name: _free(path) for name, path in places.items()}


def _free(path: Path) -> int:
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of those of these packages that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "threads": torch.get_num_threads(),
        "bfloat16": torch.cuda.is_bf16_supported() if torch.cuda.is_available() else None,
        "distributed": _distributed(),
    }


def _distributed() -> dict[str, Any]:
    """By what several processes could meet: gloo on the hosts, NCCL between GPUs."""
    import torch
    from torch import distributed

    there = distributed.is_available()
    nccl = there and distributed.is_nccl_available() and torch.cuda.is_available()
    return {
        "gloo": there and distributed.is_gloo_available(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
    }


def _gpus() -> list[dict[str, Any]]:
    import torch

    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        gpus.append(
            {
                "name": properties.name,
                "memory": total,
                "free": free,
                "capability": f"{properties.major}.{properties.minor}",
            }
        )
    return gpus


def _driver() -> dict[str, Any] | None:
    """The NVIDIA driver and the processes that hold GPU memory, or None without a driver."""
    version = driver_version()
    if version is None:
        return None
    holders = []
    for line in _nvidia_smi("--query-compute-apps=pid,used_memory"):
        pid, _, used = line.partition(",")
        if pid.strip().isdigit() and int(pid) != os.getpid():
            mebibytes = used.strip()
            holders.append({"pid": int(pid), "memory": int(mebibytes) << 20 if mebibytes.isdigit() else None})
    return {"version": version, "other_processes": holders}


def driver_version() -> str | None:
    """The NVIDIA driver's version by `nvidia-smi`, or None without a driver."""
    versions = _nvidia_smi("--query-gpu=driver_version")
    return versions[0] if versions else None


def _nvidia_smi(query: str) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program with fixed arguments)
            [program, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def show(found: Mapping[str, Any]) -> None:
    """Print what `collect` found."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(), Table.grid(padding=(0, 2))
    for name, value in _lines(found):
        table.add_row(name, value)
    console.print(table)


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    memory, torch = found["memory"], found["torch"]
    limit = f", container limit {_gib(memory['container_limit'])}" if memory["container_limit"] else ""
    lines = [
        ("Python", found["python"]),
        ("System", found["system"]),
        ("CPU", f"{found['cpu']['model']}, {found['cpu']['cores']} cores usable"),
        ("Memory", f"{_gib(memory['available'])} free of {_gib(memory['total'])}{limit}"),
    ]
    lines += [(f"Disk, {name.replace('_', ' ')}", f"{_gib(free)} free") for name, free in found["disk"].items()]
    backend = f"CUDA {torch['cuda']}, cuDNN {torch['cudnn']}" if torch["cuda"] else "built without CUDA"
    lines.append(("PyTorch", f"{torch['version']}, {torch['threads']} threads, {backend}"))
    between = torch["distributed"]
    nccl = f"NCCL {between['nccl']}" if between["nccl"] else "no NCCL"
    lines.append(("Several processes", f"{'gloo' if between['gloo'] else 'no gloo'}, {nccl}"))
    for index, gpu in enumerate(found["gpus"]):
        text = f"{gpu['name']}, {_gib(gpu['free'])} free of {_gib(gpu['memory'])}, capability {gpu['capability']}"
        lines.append((f"GPU {index}", text))
    if not found["gpus"]:
        lines.append(("GPU", "none that PyTorch can use"))
    if found["driver"] is not None:
        lines.append(("NVIDIA driver", found["driver"]["version"]))
        for process in found["driver"]["other_processes"]:
            held = _gib(process["memory"]) if process["memory"] is not None else "unknown"
            lines.append(("GPU also used by", f"process {process['pid']}, {held}"))
    lines.append(("Packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items())))
    for one in found.get("accelerators", ()):
        version = f" {one['version']}" if one["version"] else ""
        reason = f": {one['reason']}" if one["reason"] else ""
        lines.append((f"{one['name']}{version}", f"{one['status']}{reason}"))
    return lines


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
