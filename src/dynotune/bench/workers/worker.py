"""A process that holds arms and does what it is told, by lines of JSON: `python -m dynotune.bench.workers.worker`.

Its first argument is a Unix socket on which whoever started it listens; everything that a run prints goes to its standard
output, which is kept as a log. With `gpus: N` it starts N processes of itself; the first one hears the orders and tells the
others.
"""

import json
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch
from rich.console import Console

from dynotune.bench.workers.door import address
from dynotune.bench.workers.stage import Stage
from dynotune.config.load import load_config
from dynotune.config.whole import METHODS, WholeConfig
from dynotune.errors import ConfigError, DynotuneError
from dynotune.measure.calibration import best_product
from dynotune.parallel.join import joined, place
from dynotune.parallel.launch import must_be_launched, refuse_missing_gpus, run_processes
from dynotune.parallel.ranks import Ranks
from dynotune.speedups.machine import machine_of
from dynotune.train.faults.shortage import shortage_of
from dynotune.train.quiet import quiet
from dynotune.train.start.device import set_up_process

LARGEST = (
    "seconds",
    "device_seconds",
    "allocated",
    "reserved",
    "device",
    "retries",
    "typical_allocated",
)
"""Figures of which the largest of all ranks counts."""


class Worker:
    """Answers orders until it is told to end."""

    def __init__(self, ranks: Ranks, device: torch.device, console: Console, stack: ExitStack) -> None:
        """stack: holds the run that is opened; whoever made it closes it."""
        self.ranks, self.device, self.console, self.stack = ranks, device, console, stack
        self.stage: Stage | None = None

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        what = order.pop("do")
        return getattr(self, f"_{what}")(**order)  # type: ignore[no-any-return]

    def _stand(self, name: str, method: str, path: str, folder: str, shares: bool = True) -> dict[str, Any]:
        config = quiet(config_at(Path(path), method), Path(folder))
        if self.stage is None:
            self.stage = Stage.opening(config, self.ranks, self.device, self.console, self.stack)
        return self.stage.stand(name, config, shares)

    def _take(self, **order: Any) -> dict[str, Any]:
        return self._standing.take(**order)

    def _proof(self, name: str) -> dict[str, Any]:
        at = self._standing
        return {
            "rows": at.proofs.get(name, []),
            "unwanted": at.unwanted.get(name, []),
            "spent": at.spent.get(name),
            "seconds": at.trace_seconds.get(name, 0.0),
        }

    def _compiled(self) -> dict[str, Any]:
        return {"seconds": self._standing.compiled()}

    def _lengths(self, **order: Any) -> dict[str, Any]:
        return self._standing.lengths(**order)

    def _products(self) -> dict[str, Any]:
        return {"flops": best_product(self.device, torch.bfloat16)}

    def _worst(self) -> dict[str, Any]:
        return self._standing.worst(self.console.print)

    @property
    def _standing(self) -> Stage:
        if self.stage is None:
            raise ConfigError("no arm stands yet")
        return self.stage


def device_facts(device: torch.device) -> dict[str, Any]:
    """The machine with this device, and of a GPU the number under which its driver knows it."""
    facts: dict[str, Any] = {"type": device.type, "machine": asdict(machine_of(device))}
    if device.type == "cuda":
        facts["uuid"] = str(torch.cuda.get_device_properties(device).uuid)
    return facts


def config_at(path: Path, method: str) -> WholeConfig:
    """An arm's configuration, as it was written for this process."""
    return load_config(path, into=METHODS[method])


def failure(error: BaseException) -> dict[str, Any]:
    """In words, and of which kind: `memory`, `user` or `bug`."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    short = any(shortage_of(one) is not None for one in chain) or "out of memory" in str(error).lower()
    kind = "memory" if short else "user" if isinstance(error, DynotuneError) else "bug"
    return {"kind": kind, "text": str(error) or type(error).__name__, "type": type(error).__name__}


def serve(config: WholeConfig, orders: TextIO | None, answers: TextIO | None) -> int:
    """Do orders until there are no more. Each is answered; behind an error nothing of this process is to be trusted.

    orders, answers: of the first of several processes; the others do what it is told.
    """
    here = place(config)
    device = set_up_process(config, here.local_rank)
    console = Console(force_terminal=False, width=160)

    def answer(value: dict[str, Any]) -> None:
        if answers is not None:
            answers.write(json.dumps(value) + "\n")
            answers.flush()

    with ExitStack() as stack:
        ranks = stack.enter_context(joined(here, device, config.ddp_timeout))
        worker = Worker(ranks, device, console, stack)
        answer(device_facts(device))
        while True:
            line = ranks.from_first(orders.readline() if orders is not None else "")
            if not line or (order := json.loads(line))["do"] == "end":
                return 0
            try:
                value = worker.do(order)
            except (DynotuneError, MemoryError, RuntimeError, ValueError) as error:
                traceback.print_exc()
                answer({"error": failure(error)})
                return 1
            answer({"value": slowest(ranks.gather(value))})


def slowest(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several ranks' answers the first one's, with the time of the slowest and the memory of the fullest."""
    first = dict(told[0])
    for name in LARGEST:
        values = [one[name] for one in told if one.get(name) is not None]
        if len(values) > 1:
            first[name] = max(values)
    if "step_seconds" in first:
        first["step_seconds"] = [max(each) for each in zip(*(one["step_seconds"] for one in told), strict=True)]
    return first


def main() -> int:
    path, arm, method = sys.argv[1:4]
    config = config_at(Path(arm), method)
    if must_be_launched(config):
        count = config.gpus or 1
        refuse_missing_gpus(config, count)
        return run_processes(
            ["-P", "-m", "dynotune.bench.workers.worker", *sys.argv[1:4]], count, Path(arm).parent, print
        )
    if place(config).rank:
        return serve(config, None, None)
    with socket.socket(socket.AF_UNIX) as speaking:
        with address(Path(path)) as short:
            speaking.connect(short)
        with speaking.makefile("r", encoding="utf-8") as orders, speaking.makefile("w", encoding="utf-8") as answers:
            return serve(config, orders, answers)


if __name__ == "__main__":
    raise SystemExit(main())
