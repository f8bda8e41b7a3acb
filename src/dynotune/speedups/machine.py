"""Which machine this is, with the versions on which it depends whether a kernel works and how fast it is."""

import hashlib
import importlib.metadata
import json
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dynotune._version import __version__
from dynotune.environment import cpu_model, driver_version, installed

if TYPE_CHECKING:
    import torch

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Machine:
    """One device and what runs on it. Facts that were found with another one say nothing of this one."""

    device: str
    """The GPU's or the processor's name."""

    capability: str
    """Of a GPU, such as `9.0`; empty for the CPU."""

    driver: str
    cuda: str
    torch: str
    triton: str
    python: str
    dynotune: str

    @property
    def key(self) -> str:
        """A file name: the device in words, and a digest of everything."""
        words = "-".join(re.findall(r"[a-z0-9]+", self.device.lower())) or "unknown"
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"{words[:40]}-{digest[:12]}"

    def __str__(self) -> str:
        named = [("driver", self.driver), ("CUDA", self.cuda), ("torch", self.torch), ("Triton", self.triton)]
        return ", ".join([self.device, *(f"{name} {version}" for name, version in named if version)])


def machine_of(device: "torch.device | str") -> Machine:
    """The machine with `device` as the one that computes."""
    import torch

    one = torch.device(device)
    versions = installed(("triton",))
    name, capability, driver = cpu_model(), "", ""
    if one.type == "cuda":
        properties = torch.cuda.get_device_properties(one)
        name, capability = properties.name, f"{properties.major}.{properties.minor}"
        driver = _driver()
    return Machine(
        name,
        capability,
        driver,
        str(torch.version.cuda or torch.version.hip or ""),
        torch.__version__,
        versions.get("triton", ""),
        platform.python_version(),
        __version__,
    )


def installed_as(distribution: str) -> str | None:
    """Version and build of an installed package, or None. Two builds of a version differ by the checksums of their files."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    record = found.read_text("RECORD") or ""
    return f"{found.version} ({hashlib.sha256(record.encode()).hexdigest()[:8]})"


def _driver() -> str:
    if _DRIVER.is_file():  # nvidia-smi takes half a second
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)*)\s", _DRIVER.read_text(encoding="utf-8", errors="replace"))
        if found is not None:
            return found[1]
    return driver_version() or ""
