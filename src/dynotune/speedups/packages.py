"""Optional packages that speed-ups need: tried once a machine and version, and why not in words with the remedy.

Missing, cannot be imported, and imports but does not work here are three different things, and need different remedies.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from dynotune.accelerators import ACCELERATORS, Accelerator, Outcome, is_there, try_one
from dynotune.foreign import MADE_FOR, may_pass
from dynotune.speedups.contract import No, Speedup
from dynotune.speedups.machine import installed_as
from dynotune.speedups.remembered import Remembered, tried_again

if TYPE_CHECKING:
    import torch

EXTRAS = {"liger-kernel": "liger", "cudnn-frontend": "hopper"}
"""Of Dynotune, by the accelerator's name, that installs it."""

INSTALL = {
    "flash-attn": "build `flash-attn` for this PyTorch, or take an attention backend that needs no package",
    "flash-attn 3": "install the wheel of `flash-attn-3` from PyTorch's own package index",
    "flash-attn 4": "run `pip install --pre flash-attn-4`",
}
"""By the accelerator's name, where no extra installs it."""

TOGETHER = {
    "flash-attn 4": "run `pip install --pre --upgrade flash-attn-4 quack-kernels`, so that their versions agree"
}
"""By the accelerator's name, where packages are there in versions that were not made for each other."""

_TOO_LONG = re.compile(r"^no answer within")
_SYMBOL = re.compile(r"undefined symbol|symbol not found|procedure could not be found", re.IGNORECASE)
_OF_TORCH = re.compile(r"c10|\dat\d|torch|aoti")
_FOLDERS = re.compile(r"(?:/[^\s/:'\"]+)+/")
"""Of a path. They are nobody's business in a file that travels with a model."""

_LIBRARY = re.compile(r"lib(?:cudart|cublas\w*|cudnn\w*|nvrtc|cusparse|nccl)\.so\.(\d+)")
_MISSING_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_NO_KERNELS = re.compile(
    r"no kernel image|not compiled for|unsupported (gpu|arch)|invalid device function", re.IGNORECASE
)


def accelerator(name: str) -> Accelerator:
    """By the name that `Speedup.package` gives."""
    return next(one for one in ACCELERATORS if one.name == name)


def packages_of(speedup: Speedup) -> tuple[str, ...]:
    """Installed packages on which it depends, by the names under which they are installed; PyTorch and Triton apart, which
    are of the machine (`Machine`)."""
    if speedup.package is None:
        return ()
    one = accelerator(speedup.package)
    return (*one.packages, *one.beside)


def trial(name: str, device: "torch.device | str", remembered: Remembered | None = None) -> Outcome:
    """Whether the package `name` works on `device`, by trying it in a process of its own: seconds, the first time.

    The result is remembered for this machine with its versions and for the package as it is installed. remembered: default:
    what this machine remembers.
    """
    return _trial(accelerator(name), str(device), remembered)


def why_not(name: str, device: "torch.device | str", remembered: Remembered | None = None) -> No | None:
    """Why a speed-up cannot have the package `name` on `device`, in words with the remedy; None where it works."""
    outcome = trial(name, device, remembered)
    return None if outcome.status == "works" else refusal(outcome, _versions())


def keep_what_works(outcomes: Iterable[Outcome], device: "torch.device | str") -> None:
    """Somebody had packages tried on `device` by hand: those that work now are taken by runs that remembered a failure."""
    remembered = Remembered.here(device)
    for one in outcomes:
        kept = remembered.trial(one.name)
        if one.status == "works" and kept is not None and kept["status"] != "works":
            _keep(remembered, accelerator(one.name), one)


def missing(name: str) -> No | None:
    """Why not, where no package is installed that could provide `name` and none is found on the path. Runs nothing."""
    return refusal(Outcome(name, "not installed"), _versions()) if not is_there(accelerator(name)) else None


def refusal(outcome: Outcome, versions: tuple[str, str | None]) -> No:
    """In words, for one that does not work. versions: of PyTorch, and of its CUDA."""
    name, reason = outcome.name, _FOLDERS.sub("", outcome.reason or "")
    known = f"{name} {outcome.version}" if outcome.version else name
    torch, cuda = versions
    ours = f"PyTorch {torch}" + (f" with CUDA {cuda}" if cuda else "")
    if outcome.status == "not installed":
        extra = EXTRAS.get(name)
        remedy = f"run `pip install 'dynotune[{extra}]'`" if extra else INSTALL.get(name, f"install {name}")
        return No(f"{name} is not installed", remedy, expected=True)
    if outcome.status == "not tried":
        return No(f"{known} needs a GPU, and there is none", expected=True)
    again = f"install a build of {name} for {ours}, or uninstall it"
    if _TOO_LONG.search(reason):
        return No(f"{known} is installed and was tried, with {reason}", tried_again(name))
    if outcome.status == "does not work here":
        said = f"{known} is installed and imports, but does not work here"
        if _NO_KERNELS.search(reason):
            return No(f"{said}: it holds no kernels for this GPU ({reason})", f"install a build of {name} for this GPU")
        return No(f"{said}: {reason}", again)
    if MADE_FOR in reason:
        return No(f"{known} is installed and is not run: {reason}", TOGETHER.get(name, again))
    said = f"{known} is installed and cannot be imported"
    library = _LIBRARY.search(reason)
    if library is not None:
        wants = f"it is built for CUDA {library[1]}" if "libcud" in library[0] else f"it wants {library[0]}"
        return No(f"{said}: {wants}, and here is {ours} ({reason})", again)
    if _SYMBOL.search(reason):
        built = "for another PyTorch than" if _OF_TORCH.search(reason) else "against other libraries than those of"
        return No(f"{said}: it is built {built} {ours} ({reason})", again)
    missing = _MISSING_MODULE.search(reason)
    if missing is not None:
        return No(f"{said}: it needs `{missing[1]}`, which is not there", f"install `{missing[1]}`")
    return No(f"{said}: {reason}", again)


def _versions() -> tuple[str, str | None]:
    import torch

    return torch.__version__, torch.version.cuda or torch.version.hip


@functools.cache
def _once(one: Accelerator, device: str) -> Outcome:
    return try_one(one, device)


def _trial(one: Accelerator, device: str, remembered: Remembered | None) -> Outcome:
    """A GPU's number does not matter: those of a machine that have one name are alike."""
    installed = any(installed_as(package) for package in one.packages)
    if not installed:  # a module on the path has no version by which to know it again
        return _once(one, device)
    if remembered is None:
        remembered = Remembered.here(device)
    kept = remembered.trial(one.name)
    if kept is not None:
        return Outcome(**kept)
    outcome = _once(one, device)
    if not may_pass(outcome.reason or ""):
        _keep(remembered, one, outcome)
    return outcome


def _keep(remembered: Remembered, one: Accelerator, outcome: Outcome) -> None:
    remembered.keep_trial(one.name, asdict(outcome), (*one.packages, *one.beside))
