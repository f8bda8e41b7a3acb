"""Reference log-probabilities: computed once, kept by pair, checked before they are used again."""

from dynotune.reference.as_reference import as_reference
from dynotune.reference.compute import Reference, ReferenceCache
from dynotune.reference.key import Key

__all__ = ["Key", "Reference", "ReferenceCache", "as_reference"]
