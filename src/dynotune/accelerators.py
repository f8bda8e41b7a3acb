"""Optional accelerators, each one tried on this machine: works, not installed, cannot be imported, or fails here.

That a package is installed says little: wheels for another CUDA or PyTorch import and then fail, or do not import. So each
is run once on a small input, in a process of its own, since some of them end the process that tries them.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

SECONDS = 180
"""A first compilation takes a minute; longer is a failure."""


@dataclass(frozen=True)
class Accelerator:
    """One optional package or feature, and the code that shows that it works."""

    name: str
    module: str
    trial: str
    """Runs after `import torch` with `device` set. It must fail loudly if the accelerator does not work."""

    distribution: str | None = None
    """The installed package's name. Unset: part of PyTorch."""

    needs_gpu: bool = True


@dataclass(frozen=True)
class Outcome:
    """What trying gave."""

    name: str
    status: str
    """`works`, `not installed`, `import failed`, `does not work here` or `not tried`."""

    version: str | None = None
    reason: str | None = None


_ATTENTION = """
q = torch.randn(1, 64, 4, 64, device=device, dtype=torch.bfloat16)
assert torch.isfinite({call}).all()
"""
_COMPILE = """
f = torch.compile(lambda x: torch.relu(x) + 1)
x = torch.randn(32, device=device)
assert torch.equal(f(x), torch.relu(x) + 1)
"""
_FLEX = """
from torch.nn.attention.flex_attention import flex_attention
q = torch.randn(1, 2, 128, 64, device=device, dtype=torch.bfloat16)
assert torch.isfinite(torch.compile(flex_attention)(q, q, q)).all()
"""
_VARLEN = """
from torch.nn.attention.varlen import varlen_attn
q = torch.randn(64, 4, 64, device=device, dtype=torch.bfloat16)
ends = torch.tensor([0, 32, 64], device=device, dtype=torch.int32)
assert torch.isfinite(varlen_attn(q, q, q, ends, ends, 32, 32)).all()
"""
_LIGER = """
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
x = torch.randn(8, 64, device=device)
assert torch.isfinite(LigerRMSNormFunction.apply(x, torch.ones(64, device=device), 1e-6)).all()
"""
_BNB = """
import bitsandbytes.functional as F
packed, state = F.quantize_4bit(torch.randn(64, 64, device=device))
assert torch.isfinite(F.dequantize_4bit(packed, state)).all()
"""
_TRITON = """
from triton.runtime import driver
assert driver.active.get_current_target()
"""

ACCELERATORS = (
    Accelerator("torch.compile", "torch", _COMPILE, needs_gpu=False),
    Accelerator("flex attention", "torch.nn.attention.flex_attention", _FLEX),
    Accelerator("varlen attention", "torch.nn.attention.varlen", _VARLEN),
    Accelerator("triton", "triton", _TRITON, "triton"),
    Accelerator(
        "flash-attn",
        "flash_attn",
        "from flash_attn import flash_attn_func as f" + _ATTENTION.format(call="f(q, q, q, causal=True)"),
        "flash-attn",
    ),
    Accelerator(
        "flash-attn 4",
        "flash_attn.cute",
        "from flash_attn.cute import flash_attn_func as f" + _ATTENTION.format(call="f(q, q, q, causal=True)[0]"),
        "flash-attn-4",
    ),
    Accelerator(
        "xformers",
        "xformers.ops",
        "import xformers.ops as x" + _ATTENTION.format(call="x.memory_efficient_attention(q, q, q)"),
        "xformers",
    ),
    Accelerator("liger-kernel", "liger_kernel", _LIGER, "liger-kernel"),
    Accelerator("bitsandbytes", "bitsandbytes", _BNB, "bitsandbytes"),
)


def try_all(device: str, accelerators: tuple[Accelerator, ...] = ACCELERATORS) -> list[dict[str, Any]]:
    """Try each accelerator on `device` (`cpu` or `cuda`); those that are installed run at the same time."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return [asdict(outcome) for outcome in pool.map(lambda one: try_one(one, device), accelerators)]


def try_one(accelerator: Accelerator, device: str) -> Outcome:
    """Import it, then run it, each in a fresh process."""
    name, version = accelerator.name, None
    if accelerator.distribution is not None:
        try:
            version = importlib.metadata.version(accelerator.distribution)
        except importlib.metadata.PackageNotFoundError:
            return Outcome(name, "not installed")
    failure = _run(f"import {accelerator.module}")
    if failure is not None:
        return Outcome(name, "import failed", version, failure)
    if accelerator.needs_gpu and device == "cpu":
        return Outcome(name, "not tried", version, "it needs a GPU, and none is here")
    failure = _run(f"import torch\ndevice = {device!r}\n{accelerator.trial}")
    return Outcome(name, "works" if failure is None else "does not work here", version, failure)


def _run(code: str) -> str | None:
    """Run code in a fresh process; the last line of its error, or None if it went well."""
    try:
        done = subprocess.run(  # noqa: S603  (our own code, given above)
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"exit code {done.returncode}"
