"""Reference log-probabilities: computed once, kept by pair, checked before they are used again."""

from dynotune.reference.adapter_start import begins_at_zero, start_changes_base, trained_under_adapter, unlike_trl
from dynotune.reference.as_reference import as_reference
from dynotune.reference.compute import Reference, ReferenceCache
from dynotune.reference.identify import key_of
from dynotune.reference.invariants import StepZero, Suspects, stop_on_breach, why_not_checked
from dynotune.reference.key import Key
from dynotune.reference.noise import measured_noise, rounding_of

__all__ = [
    "Key",
    "Reference",
    "ReferenceCache",
    "StepZero",
    "Suspects",
    "as_reference",
    "begins_at_zero",
    "key_of",
    "measured_noise",
    "rounding_of",
    "start_changes_base",
    "stop_on_breach",
    "trained_under_adapter",
    "unlike_trl",
    "why_not_checked",
]
