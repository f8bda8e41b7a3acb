"""The machine and its packages, each tried for working.

Everything foreign runs in a process of its own with a time limit: a package that crashes, hangs or leaves the process is a
fact about the environment, not the end of the audit.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dynotune.accelerators import ACCELERATORS
from dynotune.audit.facts.environment import Environment, Package
from dynotune.config.secrets import names_a_secret
from dynotune.environment import PACKAGES, installed
from dynotune.isolated import run_isolated
from dynotune.unmet import unmet

SECONDS, SECONDS_OF_ALL = 60, 400
"""How long one import may take, and the machine with all accelerators."""

TRAINERS = ("axolotl", "deepspeed", "kernels", "llamafactory", "optimum", "torchao", "unsloth", "unsloth-zoo")
"""Packages that training depends on besides those that `dynotune env` names."""

IMPORTS = {
    "accelerate": "accelerate",
    "datasets": "datasets",
    "deepspeed": "deepspeed",
    "peft": "peft",
    "torch": "torch",
    "transformers": "transformers",
    "trl": "trl",
}
"""By distribution, what is imported to try it. Others are only looked up: some patch what is installed when imported."""

PREFIXES = (
    "ACCELERATE_",
    "CUDA_",
    "DEEPSPEED_",
    "FSDP_",
    "HF_HUB_",
    "NCCL_",
    "PYTORCH_",
    "TORCH_",
    "TRITON_",
    "UNSLOTH_",
)
NAMES = frozenset({
    "FORCE_TORCHRUN", "GLOO_SOCKET_IFNAME", "HF_HOME", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "RANK", "TOKENIZERS_PARALLELISM", "WORLD_SIZE",
})  # fmt: skip


def read_environment(try_packages: bool) -> Environment:
    """What this machine is and has. With `try_packages` every accelerator runs once and every library is imported
    (seconds to minutes); without, packages are looked up only."""
    machine, failure = _machine(try_packages)
    packages = {name: Package(name, version) for name, version in installed((*PACKAGES, *TRAINERS)).items()}
    for one in ACCELERATORS:
        for name in one.packages:
            if version := installed([name]).get(name):
                packages[name] = Package(name, version)
    if failure:
        machine["failure"] = failure
    if try_packages:
        packages |= _accelerators(machine)
        packages |= {one.name: one for one in _imported(packages)}
    machine["conflicts"] = list(conflicts())
    machine["working_folder"] = _slow_folder()
    return Environment(
        packages, machine.get("gpus", []), machine, _variables(os.environ), wsl=_wsl(), container=_container()
    )


def _machine(try_accelerators: bool) -> tuple[dict[str, Any], str]:
    """`dynotune.environment.collect` of a process of its own; the error where that fails."""
    code = (
        "import json, sys; from dynotune.environment import collect;"
        f" sys.stdout.write('\\n' + json.dumps(collect(try_accelerators={try_accelerators})))"
    )
    output, failure = _run(code, SECONDS_OF_ALL if try_accelerators else SECONDS)
    if failure:
        return {"cpu": {"cores": os.cpu_count()}}, failure
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    if "disk" in found:  # that process stands in another folder
        found["disk"]["current_folder"] = shutil.disk_usage(Path.cwd()).free
    return found, ""


def _accelerators(machine: Mapping[str, Any]) -> dict[str, Package]:
    works = {"works": True, "does not work here": False, "import failed": False}
    found = {}
    for outcome in machine.get("accelerators", ()):
        one = next(one for one in ACCELERATORS if one.name == outcome["name"])
        version = outcome["version"] or (importlib.metadata.version("torch") if not one.packages else None)
        why = ": ".join(part for part in (outcome["status"], outcome["reason"]) if part)
        working = works.get(outcome["status"])
        found[one.name] = Package(
            one.name, None if outcome["status"] == "not installed" else version, working, "" if working else why
        )
    return found


def _imported(packages: Mapping[str, Package]) -> list[Package]:
    wanted = [name for name in IMPORTS if name in packages]
    with ThreadPoolExecutor(max_workers=2) as pool:
        failures = list(pool.map(lambda name: _run(f"import {IMPORTS[name]}", SECONDS)[1], wanted))
    return [
        Package(name, packages[name].version, not failure, f"import failed: {failure}" if failure else "")
        for name, failure in zip(wanted, failures, strict=True)
    ]


def _run(code: str, seconds: float) -> tuple[str, str]:
    """What this Python prints, and the last line of the error, or why there is none."""
    try:
        done = run_isolated(code, seconds)
    except subprocess.TimeoutExpired:
        return "", f"no answer within {seconds:g} s"
    if done.returncode == 0:
        return done.stdout.decode(errors="replace"), ""
    if done.returncode < 0:
        return "", f"the process was ended by signal {-done.returncode}"
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return "", lines[-1][:300] if lines else f"the process was left with exit code {done.returncode}"


def conflicts() -> Iterator[dict[str, str]]:
    """Requirements of installed training packages that the installed versions do not meet, by the packages' own metadata."""
    kernels = ("bitsandbytes", "flash-attn", "flash-attn-4", "liger-kernel", "quack-kernels")
    for name in installed((*PACKAGES, *TRAINERS, *kernels)):
        for one in unmet(name):
            yield {"package": name, "version": one.version, "wants": one.wants, "there": one.there}


def _variables(given: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in given.items()
        if (name in NAMES or name.startswith(PREFIXES)) and not names_a_secret(name)
    }


def _wsl() -> bool:
    return "microsoft" in platform.release().lower()


def _container() -> bool:
    if any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")):
        return True
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _slow_folder() -> str | None:
    from dynotune.mounts import slow_mount

    return slow_mount(Path.cwd())
