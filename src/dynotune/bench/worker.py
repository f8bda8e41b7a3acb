"""A process that holds arms and does what it is told, a line of JSON at a time: `python -m dynotune.bench.worker IN OUT`.

IN and OUT are numbers of pipes that the process was given; everything that a run prints goes to its standard output, which
whoever started it keeps as a log.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import torch
from rich.console import Console

from dynotune.bench.stage import Stage, quiet
from dynotune.config.load import load_config
from dynotune.config.whole import METHODS, WholeConfig
from dynotune.errors import ConfigError, DynotuneError
from dynotune.parallel.join import joined, place
from dynotune.parallel.ranks import Ranks
from dynotune.train.device import set_up_process

SHORT = (torch.OutOfMemoryError, torch.AcceleratorError)


class Worker:
    """Answers orders until it is told to end."""

    def __init__(
        self, ranks: Ranks, device: torch.device, console: Console, stack: ExitStack, say: Callable[..., None]
    ):
        self.ranks, self.device, self.console, self.stack, self.say = ranks, device, console, stack, say
        self.stage: Stage | None = None

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        what = order.pop("do")
        return getattr(self, f"_{what}")(**order)  # type: ignore[no-any-return]

    def _stand(self, name: str, method: str, path: str, folder: str) -> dict[str, Any]:
        config = quiet(config_at(Path(path), method), Path(folder))
        if self.stage is None:
            self.stage = Stage.opening(config, self.ranks, self.device, self.console, self.stack)
        return self.stage.stand(name, config)

    def _take(self, **order: Any) -> dict[str, Any]:
        return self._standing.take(**order)

    def _proof(self, name: str) -> dict[str, Any]:
        return {"rows": self._standing.proofs.get(name, [])}

    def _lengths(self, **order: Any) -> dict[str, Any]:
        return self._standing.lengths(**order)

    def _worst(self) -> dict[str, Any]:
        return self._standing.worst(self.console.print)

    @property
    def _standing(self) -> Stage:
        if self.stage is None:
            raise ConfigError("no arm stands yet")
        return self.stage


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
    short = any(isinstance(one, torch.OutOfMemoryError) for one in chain) or "out of memory" in str(error).lower()
    kind = "memory" if short else "user" if isinstance(error, DynotuneError) else "bug"
    return {"kind": kind, "text": str(error) or type(error).__name__, "type": type(error).__name__}


def serve(orders: TextIO, answers: TextIO) -> int:
    """Do orders until there are no more. Each is answered; behind an error nothing of this process is to be trusted."""

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    console = Console(force_terminal=False, width=160)
    first = json.loads(next(orders))
    config = config_at(Path(first["path"]), first["method"])
    here = place(config)
    device = set_up_process(config, here.local_rank)
    with ExitStack() as stack:
        ranks = stack.enter_context(joined(here, device, config.ddp_timeout))
        worker = Worker(ranks, device, console, stack, console.print)
        answer({"device": device.type, "name": torch.cuda.get_device_name() if device.type == "cuda" else "cpu"})
        for line in orders:
            order = json.loads(line)
            if order["do"] == "end":
                break
            try:
                value = worker.do(order)
            except (DynotuneError, *SHORT, RuntimeError, ValueError) as error:
                traceback.print_exc()
                answer({"error": failure(error)})
                return 1
            answer({"value": value})
    return 0


def main() -> int:
    orders, answers = (int(word) for word in sys.argv[1:3])
    with os.fdopen(orders, encoding="utf-8") as reading, os.fdopen(answers, "w", encoding="utf-8") as writing:
        return serve(reading, writing)


if __name__ == "__main__":
    raise SystemExit(main())
