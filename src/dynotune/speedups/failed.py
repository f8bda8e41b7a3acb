"""What is kept of a speed-up that failed: on what it depends, so that another version of that has it tried again."""

from dynotune.speedups.contract import Context, Speedup
from dynotune.speedups.packages import packages_of
from dynotune.speedups.remembered import Remembered

FITTED_TO = ("transformers", "peft")
"""Packages whose modules speed-ups stand in for. What was not seen to run may be due to them as well."""


def keep_failed(remembered: Remembered, speedup: Speedup, context: Context, reason: str, evidence: str = "") -> None:
    """Have this machine leave it out in work of this kind. reason: the end of a sentence. evidence: what was seen."""
    remembered.keep_failure(speedup.name, reason, evidence, (*packages_of(speedup), *FITTED_TO), work=context.work)
