"""What a run left: a folder of Dynotune, or of another trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunFacts:
    folder: str
    trainer: str
    metrics: Sequence[Mapping[str, Any]]
    """Rows of `metrics.jsonl`, or of `trainer_state.json`'s history."""

    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    engagement: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    """Every file and its bytes, by relative path."""
