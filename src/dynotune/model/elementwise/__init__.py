"""RMSNorm, gated activation and rotary embedding as one kernel each, in place of a dozen elementwise ones.

Legend of shapes: B rows of the batch, T tokens, D normalised or head dimension, I intermediate, H heads, K key heads.
"""

from dynotune.model.elementwise.install import Engaged, install

__all__ = ["Engaged", "install"]
