"""The ways of computing packed attention, one file each. Which one runs is chosen once a run, for each model by itself.

A kernel takes what it can take; every other call goes to the exact reference, which takes anything, and says so.
"""

from collections.abc import Mapping

from dynotune.model.attention.backends import varlen
from dynotune.model.attention.backends.backend import Asked, Kernel

KERNELS: Mapping[str, Kernel] = {"varlen": varlen}
"""By name. Their packages are imported when they are first asked whether they can."""

REFERENCE = "reference"
"""No kernel: documents one after another."""

NAMES = (*KERNELS, REFERENCE)
DEFAULT = "varlen"
"""Part of PyTorch."""

__all__ = ["DEFAULT", "KERNELS", "NAMES", "REFERENCE", "Asked", "Kernel"]
