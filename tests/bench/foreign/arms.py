"""Benches of commands, run in this process without asking what device there is."""

import json
import sys
from pathlib import Path
from typing import Any

from dynotune.bench.asking.schedule import Rules
from dynotune.bench.foreign.conclude import conclude
from dynotune.bench.foreign.measure import Asked, Command, measure
from dynotune.results.result import Block, Result

TRAINER = Path(__file__).with_name("trainer.py")
DEVICE = {"type": "cpu", "machine": {"device": "a CPU"}}


def arm(name: str, **asked: Any) -> Command:
    words = (sys.executable, "-S", str(TRAINER), json.dumps({"tokens": 1000, **asked}))
    return Command(name, words, Path.cwd(), facts={"command": name})


def asked_of(*arms: Command, other_work: bool = False, pairs: int = 2, out: Path = Path("bench")) -> Asked:
    rules = Rules(pairs=pairs, most_pairs=pairs, noise_pairs=1)
    return Asked("foreign", arms, rules, 0, out, "dynotune bench -- a :: b", other_work)


def benched(tmp_path: Path, *arms: Command, **other: Any) -> Result:
    """Processes run."""
    return conclude(
        measure(asked_of(*arms, **other), DEVICE, tmp_path, print), (), machine={"device": "a CPU"}, commit=None
    )


def block(name: str, pair: int, **other: Any) -> Block:
    """Of no process."""
    return Block(
        **{
            "arm": name, "pair": pair, "first_step": 1, "steps": 0, "examples": 0, "documents": 0, "real_tokens": 1000,
            "label_tokens": 0, "processed_tokens": 0, "seconds": 10.0, "wall_seconds": 20.0, **other,
        }
    )  # fmt: skip
