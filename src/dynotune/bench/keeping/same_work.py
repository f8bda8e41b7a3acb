"""Whether an arm of one bench does the work of that arm in another: their kept configurations, key by key.

A line that names the operating point has room for a few keys. Examples cut to a quarter of their length, other learning
rates or held-out rows are not among them, and all of these are other work under the same name.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticUndefined

from dynotune.bench.asking.arms import CONTENT
from dynotune.config.keys.batch import BatchConfig
from dynotune.config.whole import METHODS
from dynotune.printable import printable
from dynotune.report.settings import without_local_paths
from dynotune.results.result import Result
from dynotune.train.checkpoints.decisions import DECISIONS, EVALUATIONS, Matter
from dynotune.train.checkpoints.differences import Difference, differences
from dynotune.train.quiet import QUIET

NO_LENGTH = frozenset({"num_train_epochs", "max_steps"})
"""Keys that say how long a run is: a bench takes the steps that it needs, whatever they say."""

SHOWN = 40
"""Characters of a value that are shown."""

MOST = 6
"""Keys that are named."""


def other_work(old: Result, new: Result, arm: str) -> str:
    """Keys in which the arm of that name differs, with their values, as the end of a sentence; empty where it is the same
    work, or nothing was kept of it.

    How work is executed may differ: whether that pays is what benches are held against each other for. So may the split of
    a step's examples into batch and accumulation, but for losses that go by the batch. What a bench does not do
    (evaluate, save, reach an end), and where things lie, may differ too.
    """
    then, now = (_kept(result, arm) for result in (old, new))
    if not then or not now:
        return ""
    examples = [_examples(result, arm, config) for result, config in ((old, then), (new, now))]
    same = None not in examples and examples[0] == examples[1]
    found = [
        f"{one.key} {_shown(one.then)} and {_shown(one.now)}" for one in differences(then, now) if _counts(one, same)
    ]
    return ", ".join(found[:MOST]) + (f" and {len(found) - MOST} more keys" if len(found) > MOST else "")


def _counts(one: Difference, same_examples: bool) -> bool:
    """same_examples: whether steps of both hold as many."""
    known = DECISIONS.get(one.key)
    if one.key in QUIET or one.key in NO_LENGTH:
        return False
    if one.key in CONTENT:
        return not same_examples or one.matter is Matter.ERROR
    if known is None:
        return True
    return one.matter is not Matter.NOTHING and known.reason != EVALUATIONS


def _examples(result: Result, name: str, config: Mapping[str, Any]) -> int | None:
    """In a step of that arm; None where its configuration does not say it in a way that this version reads."""
    world = next(result.devices_of(arm) for arm in result.arms if arm.name == name)
    try:
        return BatchConfig(**{key: config[key] for key in CONTENT}).examples_on(world)
    except ValueError:
        return None


def _kept(result: Result, name: str) -> Mapping[str, Any]:
    """The configuration of an arm, as JSON has it, with what keys say that its version did not have yet. Empty for
    commands, of which counts say whether they do the same work."""
    config = next((arm.config for arm in result.arms if arm.name == name), {})
    method = METHODS.get(result.work.partition(" ")[0])
    if not config or method is None or result.kind in ("revisions", "foreign"):
        return {}
    defaults = {key: field.get_default(call_default_factory=True) for key, field in method.model_fields.items()}
    whole = {**{key: value for key, value in defaults.items() if value is not PydanticUndefined}, **config}
    read: dict[str, Any] = json.loads(json.dumps(without_local_paths(whole), default=str))
    return read


def _shown(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value), SHOWN)
