"""The ways of computing packed attention, one file each. Which one runs is chosen once a run, for each model by itself.

A kernel takes what it can take; every other call goes to the exact reference, which takes anything, and says so.
"""

from collections.abc import Mapping

from dynotune.model.attention.backends import cudnn, fa3, fa4, flex, varlen
from dynotune.model.attention.backends.backend import Asked, Kernel, why_not

KERNELS: Mapping[str, Kernel] = {"fa3": fa3, "cudnn": cudnn, "fa4": fa4, "varlen": varlen, "flex": flex}
"""By name. Their packages are imported when they are first asked whether they can."""

REFERENCE = "reference"
"""No kernel: documents one after another."""

NAMES = (*KERNELS, REFERENCE)
DEFAULT = "varlen"
"""Part of PyTorch."""

__all__ = ["DEFAULT", "KERNELS", "NAMES", "REFERENCE", "Asked", "Kernel", "why_not"]
