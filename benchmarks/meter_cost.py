"""What measuring takes of the host in a real run, by its parts, beside what the run states of it.

    python benchmarks/meter_cost.py --out FILE [--logging-steps 10 1] [--steps 600] [--rounds 3] [--commit COMMIT]
        [--model FOLDER --rows FILE]

Each run is a process of its own, in turn, so that a host that gets busier changes all of them. Microseconds a step of the
thread that trains, of the processor: of all calls, from the first step on, callbacks of users left out. Default is a tiny
model made on the spot; on a GPU a larger one (`--model`, `--rows`) runs as it does elsewhere.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.tiny import chats, tiny_model, tiny_tokenizer

from benchmarks.whole_file import write_json
from dynotune.environment import cpu_model
from dynotune.manifest import versions
from dynotune.train.meter import Meter
from dynotune.train.telling.journal import Journal
from dynotune.train.telling.progress import ProgressDisplay
from dynotune.train.telling.surroundings import Surroundings
from dynotune.train.telling.watch import Watch

PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "marks": ((Meter, "now"), (Meter, "add")),
    "windows": ((Meter, "close"),),
    "watch": ((Watch, "take"),),
    "rows": ((Journal, "take"), (Journal, "flush")),
    "memory": ((Surroundings, "step"), (Surroundings, "phase")),
    "live line": ((ProgressDisplay, "step"),),
}
"""Methods of the outermost calls, by what they are for; generators stand in `measure`."""


class Parts:
    """Processor time of this thread in calls that are no part of another one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.within = False

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.within:
                return function(*args, **kwargs)
            self.within, began = True, time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += time.thread_time() - began
                self.within = False

        return call

    def generator(self, part: str, function: Callable[..., Any], inner: bool) -> Callable[..., Any]:
        """inner: the generator's first argument is an iterator, whose own time is not counted."""

        def call(it: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            spent = 0.0

            def given(items: Iterator[Any]) -> Iterator[Any]:
                nonlocal spent
                while True:
                    began = time.thread_time()
                    item = next(items, END)
                    spent += time.thread_time() - began
                    if item is END:
                        return
                    yield item

            made = function(it, given(args[0]), *args[1:]) if inner else function(it, *args, **kwargs)
            while True:
                spent, began = 0.0, time.thread_time()
                item = next(made, END)
                self.seconds[part] += time.thread_time() - began - spent
                if item is END:
                    return
                yield item

        return call


END = object()


def measure(model: Path | None, rows: Path | None, steps: int, logging_steps: int) -> dict[str, Any]:
    """One run in this process."""
    from dynotune import SFTConfig, train_sft

    parts = Parts()
    for part, methods in PARTS.items():
        for owner, name in methods:
            setattr(owner, name, parts.timed(part, getattr(owner, name)))
    made: Any = Meter
    made.waited = parts.generator("marks", Meter.waited, inner=True)
    made.windows = parts.generator("windows", Meter.windows, inner=False)
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "output_dir": folder,
            "max_steps": steps,
            "logging_steps": logging_steps,
            "per_device_train_batch_size": 4,
            "save_strategy": "no",
            **({"model_name_or_path": str(model)} if model else {}),
            **({"dataset_name": str(rows)} if rows else {}),
        }
        given = {} if model else {"model": tiny_model(), "tokenizer": tiny_tokenizer()}
        result = train_sft(SFTConfig(**config), **given, **({} if rows else {"train_dataset": chats(400)}))
    figures = result.summary
    by_part = {part: 1e6 * seconds / steps for part, seconds in parts.seconds.items()}
    return {
        "stated": figures["meter_microseconds_per_step"],
        "all": sum(by_part.values()),
        **by_part,
        "step_ms": 1e3 * figures["train_seconds"] / steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logging-steps", type=int, nargs="+", default=[10, 1])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        write_json(args.out, measure(args.model, args.rows, args.steps, args.logging_steps[0]))
        return
    found: dict[int, list[dict[str, Any]]] = {every: [] for every in args.logging_steps}
    for _ in range(args.rounds):
        for every, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                one = Path(folder) / "one.json"
                command = [sys.executable, __file__, "--one", "--out", str(one)]
                command += ["--logging-steps", str(every), "--steps", str(args.steps)]
                command += ["--model", str(args.model)] if args.model else []
                command += ["--rows", str(args.rows)] if args.rows else []
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                runs.append(json.loads(one.read_text()))
            print(f"a row every {every}: {' '.join(f'{name} {value:.0f}' for name, value in runs[-1].items())}")
    middle = {
        every: {name: statistics.median(run.get(name, 0.0) for run in runs) for name in runs[0]}
        for every, runs in found.items()
    }
    write_json(
        args.out,
        {
            "command": f"python benchmarks/meter_cost.py --steps {args.steps} --rounds {args.rounds}",
            "commit": args.commit,
            "versions": versions(),
            "cpu": cpu_model(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "microseconds_per_step": {"median": middle, "runs": found},
        },
    )


if __name__ == "__main__":
    main()
