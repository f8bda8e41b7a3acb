"""Linears that are trained themselves: one autograd function for all that share their input."""

from dynotune.model.linears.install import Engaged, install

__all__ = ["Engaged", "install"]
