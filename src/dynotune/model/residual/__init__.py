"""The sum of a residual and a branch, computed by the kernel of the RMSNorm that follows it."""

from dynotune.model.residual.install import Engaged, install

__all__ = ["Engaged", "install"]
