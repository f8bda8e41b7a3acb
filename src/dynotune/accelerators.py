"""Optional accelerators, each one tried on this machine: works, not installed, cannot be imported, or fails here.

That a package is installed says little: wheels for another CUDA or PyTorch import and then fail, or do not import. So each
is run once on a small input, in a process of its own, since some of them end the process that tries them.
`dynotune.speedups.packages` remembers what came of it.
"""

import importlib.metadata
import importlib.util
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from dynotune.isolated import run_isolated

SECONDS = 180
"""A first compilation takes a minute; longer is a failure."""

_IMPORTED, _DONE = "dynotune: imported", "dynotune: done"
"""What the process that tries writes once the import is done, and at the end: some packages leave the process."""


@dataclass(frozen=True)
class Accelerator:
    """One optional package or feature, and the code that shows that it works."""

    name: str
    modules: str | tuple[str, ...]
    """What is imported. Of several the first that is there: each of them may provide it."""

    trial: str
    """Runs after that and `import torch`, with `device` set and `module` the last one imported. It must fail loudly if the
    accelerator does not work."""

    distributions: str | tuple[str, ...] = ()
    """Names of the installed packages that may provide it. Empty: part of PyTorch."""

    beside: tuple[str, ...] = ()
    """Installed packages on which it depends, besides those: with others of them it has to be tried again."""

    needs_gpu: bool = True

    load: str = ""
    """Imports it, where that is more than importing a module; `module` is then unset. It raises `ModuleNotFoundError(NONE)`
    where nothing is there."""

    @property
    def packages(self) -> tuple[str, ...]:
        """`distributions`, always as several."""
        return _several(self.distributions)


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
x = torch.randn(8, 64, device=device, requires_grad=True)
y = LigerRMSNormFunction.apply(x, torch.ones(64, device=device), 1e-6)
assert all(torch.isfinite(z).all() for z in (y, *torch.autograd.grad(y.sum(), x)))
"""
_LOAD_FA3 = """
from dynotune.model.attention.backends.fa3 import missing
if (why := missing()) is not None:
    raise ModuleNotFoundError(NONE) if why.endswith("is installed") else ImportError(why)
"""
_FA3 = """
q, grad = (torch.randn(64, 4, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
k = v = q[:, :2].contiguous()
ends = torch.tensor([0, 32, 64], device=device, dtype=torch.int32)
how = dict(cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=32, max_seqlen_k=32, softmax_scale=0.1, is_causal=True)
out, lse, *_ = torch.ops.flash_attn_3.fwd(q, k, v, num_splits=1, **how)
grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
torch.ops.flash_attn_3.bwd(grad, q, k, v, out, lse, *grads, **how)
assert all(torch.isfinite(x).all() for x in (out, *grads))
"""
_LOAD_FA4 = """
from dynotune.model.attention.backends.fa4 import missing
if (why := missing()) is not None:
    raise ModuleNotFoundError(NONE) if why.endswith("is not installed") else ImportError(why)
"""
_FA4 = """
from dynotune.model.attention.backends.fa4 import attend
q = torch.randn(64, 4, 128, device=device, dtype=torch.bfloat16, requires_grad=True)
k = v = q[:, :2].detach().clone().requires_grad_()
out = attend(q, k, v, torch.tensor([0, 32, 64], device=device, dtype=torch.int32), 32, 0.1, None, None, None)
grads = torch.autograd.grad(out.float().square().sum(), (q, k))
assert all(torch.isfinite(x).all() for x in (out, *grads))
"""
_CUDNN = """
import cudnn.sdpa.fwd.torch_op
q = torch.randn(64, 4, 128, device=device, dtype=torch.bfloat16, requires_grad=True)
k = v = q[:, :2].detach().clone().requires_grad_()
ends = torch.tensor([0, 32, 64], device=device, dtype=torch.int32)
out = torch.ops.cudnn.sdpa_fwd(q, k, v, 0.1, is_causal=True, cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=32,
                               max_seqlen_kv=32, return_lse=True)[0]
grads = torch.autograd.grad(out.float().square().sum(), (q, k))
assert all(torch.isfinite(x).all() for x in (out, *grads))
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
        "flash-attn 3",
        ("flash_attn_interface", "flash_attn_3", "xformers"),
        _FA3,
        ("flash-attn-3", "xformers"),
        ("nvidia-cuda-runtime-cu12",),
        load=_LOAD_FA3,  # as a run loads it
    ),
    Accelerator(
        "flash-attn 4",
        "flash_attn.cute",
        _FA4,  # backward too: that of versions that do not belong together never returns
        "flash-attn-4",
        ("nvidia-cutlass-dsl", "quack-kernels"),
        load=_LOAD_FA4,
    ),
    Accelerator(
        "xformers",
        "xformers.ops",
        "import xformers.ops as x" + _ATTENTION.format(call="x.memory_efficient_attention(q, q, q)"),
        "xformers",
    ),
    Accelerator("cudnn-frontend", "cudnn", _CUDNN, "nvidia-cudnn-frontend", ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")),
    Accelerator("liger-kernel", "liger_kernel", _LIGER, "liger-kernel"),
    Accelerator("bitsandbytes", "bitsandbytes", _BNB, "bitsandbytes"),
)


def try_all(device: str, accelerators: tuple[Accelerator, ...] = ACCELERATORS) -> list[dict[str, Any]]:
    """Try each accelerator on `device` (`cpu` or `cuda`); those that are installed run at the same time."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return [asdict(outcome) for outcome in pool.map(lambda one: try_one(one, device), accelerators)]


def try_one(accelerator: Accelerator, device: str) -> Outcome:
    """Import it, then run it on `device` (`cpu`, `cuda`, `cuda:1`), in a fresh process."""
    name = accelerator.name
    version = next((v for v in map(_version, accelerator.packages) if v is not None), None)
    if accelerator.packages and not is_there(accelerator):
        return Outcome(name, "not installed")
    tried = not accelerator.needs_gpu or device != "cpu"
    imported, failure = _run(accelerator, accelerator.trial if tried else "", device)
    if failure is not None and not imported:
        if failure == f"ModuleNotFoundError: {_NONE_IS_THERE}":
            return Outcome(name, "not installed")
        return Outcome(name, "import failed", version, failure)
    if not tried:
        return Outcome(name, "not tried", version, "it needs a GPU, and none is here")
    return Outcome(name, "works" if failure is None else "does not work here", version, failure)


def is_there(accelerator: Accelerator) -> bool:
    """Whether a package of it is installed, or a module of it on the path. Imports nothing."""
    installed = any(_version(package) is not None for package in accelerator.packages)
    return installed or any(map(_is_found, _several(accelerator.modules)))


_NONE_IS_THERE = "none of these modules is there"
_FIRST_OF_SEVERAL = """
for name in {modules!r}:
    try:
        there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        continue
    if there:
        module = importlib.import_module(name)
        break
else:
    raise ModuleNotFoundError(NONE)
"""
_PROGRAM = """
import importlib, importlib.util, sys
import torch
device, NONE = {device!r}, {none!r}
{load}
sys.stdout.write({imported!r} + chr(10))
sys.stdout.flush()
{trial}
sys.stdout.write({done!r})
"""


def _run(one: Accelerator, trial: str, device: str) -> tuple[bool, str | None]:
    """Import and try in a fresh process. Whether it was imported; the last line of the error, or None if all went well."""
    modules = _several(one.modules)
    load = one.load or (
        f"module = importlib.import_module({modules[0]!r})"
        if len(modules) == 1
        else _FIRST_OF_SEVERAL.format(modules=modules)
    )
    code = _PROGRAM.format(device=device, none=_NONE_IS_THERE, load=load, imported=_IMPORTED, done=_DONE, trial=trial)
    try:
        done = run_isolated(code, SECONDS)
    except subprocess.TimeoutExpired as error:
        return _IMPORTED.encode() in (error.stdout or b""), f"no answer within {SECONDS} s"
    imported = _IMPORTED.encode() in done.stdout
    if _DONE.encode() in done.stdout and done.returncode == 0:
        return imported, None
    if done.returncode < 0:
        return imported, f"the process was ended by signal {-done.returncode}"
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return imported, lines[-1][:300] if lines else f"the process was left with exit code {done.returncode}"


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_found(module: str) -> bool:
    """Whether Python finds the package that holds `module`. Imports nothing."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except ValueError:  # a module without a specification stands in its place
        return True
