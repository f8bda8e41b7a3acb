"""Several processes of one run: what they do together, and what becomes of them when one of them does not come."""

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dynotune.errors import TrainingError
from dynotune.parallel.board import Board, connection, meeting_point
from dynotune.parallel.gradients import sum_gradients
from dynotune.parallel.output import Output
from dynotune.parallel.ranks import Ranks
from dynotune.parallel.watchdog import Watchdog, ranks_named

SLACK = 60.0
"""Seconds by which a collective's own timeout is later than the watchdog, which knows more."""

LAST_WAY_OUT = 15.0
"""Seconds after which a failed rank is ended although it has not come to an end: destructors may wait for a peer."""


_groups = itertools.count()


class RankLostError(TrainingError):
    """Another rank is not there any more."""


class RankGroup(Ranks):
    """This process among `world` of them. The hosts meet by gloo, tensors on GPUs by NCCL."""

    def __init__(self, rank: int, world: int, local_rank: int, device: torch.device, timeout: float) -> None:
        """timeout: seconds after which a rank that makes no progress is taken to hang."""
        super().__init__(rank, world, local_rank)
        self.device, self.output = device, Output(rank)
        self.way_back: Callable[[], str] = lambda: ""
        """Says how to go on from what was saved."""

        patience = timedelta(seconds=timeout + SLACK)
        name = f"dynotune-{next(_groups)}"
        self._owns = not dist.is_initialized()
        if self._owns:
            store = dist.PrefixStore(f"{name}-group", meeting_point(rank))  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
        self._hosts: Any = dist.new_group(backend="gloo", timeout=patience)
        self._tensors: Any = self._hosts
        if device.type == "cuda":
            self._tensors = dist.new_group(backend="nccl", timeout=patience, device_id=device)
        # Connections of their own: what waits in one of them holds nothing else up.
        self._board = Board(connection(), name, rank, world)
        self.watchdog = Watchdog(
            Board(connection(), name, rank, world),
            timeout,
            self.output.tell,
            self.output.path,
            self.output.log,
            lambda: self.way_back(),
        )
        self.watchdog.start()
        self._blocks = 0
        self._closed = False

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        with self._meeting("the ranks' agreement"):
            return tuple(map(bool, self._most(torch.tensor(flags, dtype=torch.uint8)).tolist()))

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        with self._meeting("the sum of gradients over ranks"):
            sum_gradients(list(parameters), self._tensors, self._on_any)

    def sum(self, values: Tensor) -> Tensor:
        with self._meeting("a sum over ranks"):
            summed = values.clone()
            dist.all_reduce(summed, group=self._tensors)
            return summed

    def gather(self, value: Any) -> list[Any]:
        with self._meeting("the ranks' exchange"):
            mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
            dist.all_gather(sizes, torch.tensor([len(mine)]), group=self._hosts)
            padded = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8)
            padded[: len(mine)] = mine
            parts = [torch.empty_like(padded) for _ in range(self.world)]
            dist.all_gather(parts, padded, group=self._hosts)
            return [json.loads(bytes(p[: int(n)].numpy())) for p, n in zip(parts, sizes, strict=True)]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        with self._meeting("taking the first rank's weights"), torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, 0, group=self._tensors)

    def leave(self, notice: dict[str, Any]) -> None:
        self.watchdog.leave(notice)

    def left(self) -> dict[int, dict[str, Any]]:
        return dict(self.watchdog.left)

    @contextmanager
    def one_after_another(self, what: str) -> Iterator[None]:
        if self.is_first:
            self.at(0, what, patient=True)
            yield
            self._board.set_done(self._next_block())
        else:
            self._await(self._next_block(), f"waiting for rank 0, which is at {what}")
            self.at(0, what, patient=True)
            yield

    @contextmanager
    def first_alone(self, what: str) -> Iterator[bool]:
        if self.is_first:
            step, before = self.watchdog.where
            self.at(step, what)
            yield True
            self._board.set_done(self._next_block())
            self.at(step, before)
        else:
            yield False
            self._await(self._next_block(), f"waiting for rank 0, which is at {what}")

    def at(self, step: int, doing: str, patient: bool = False) -> None:
        self.watchdog.at(step, doing, patient)

    def fail(self, error: BaseException) -> bool:
        if self._closed:
            return False
        step, doing = self.watchdog.where
        try:
            speaks = self._board.claim_failure({"step": step, "doing": doing, "text": str(error)})
            if not speaks and (self._board.failure() or {}).get("hung"):
                self.output.be_quiet()
                self.watchdog.join()
        except RuntimeError:  # the store has gone with the rank that kept it
            speaks = isinstance(error, RankLostError) and self.rank == 1
        if speaks:
            self.output.speak()
            if self.rank:
                self.output.tell(f"rank {self.rank} ends the run:")
        else:
            self.output.be_quiet()
        self._closed = True
        self.watchdog.stop()
        return speaks

    def leave_soon(self) -> None:
        """This process has failed and done what it had to: it ends, if need be without asking."""
        way_out = threading.Timer(LAST_WAY_OUT, os._exit, (1,))
        way_out.daemon = True
        way_out.start()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.watchdog.at(self.watchdog.where[0], "ending", patient=True)
        dist.barrier(group=self._hosts)  # whoever keeps the store must not go while others still look into it
        self.watchdog.stop()
        if self._owns:
            dist.destroy_process_group()
        self.output.speak()

    def _most(self, flags: Tensor) -> Tensor:
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._hosts)
        return flags

    def _on_any(self, flags: list[bool]) -> list[bool]:
        """Which of these are set on any rank; two messages only where a rank's own are not all set."""
        if not self._most(torch.tensor([not all(flags)], dtype=torch.uint8)).item():
            return flags
        return list(map(bool, self._most(torch.tensor(flags, dtype=torch.uint8)).tolist()))

    def _next_block(self) -> str:
        self._blocks += 1
        return str(self._blocks)

    def _await(self, name: str, doing: str) -> None:
        step, before = self.watchdog.where
        self.at(step, doing, patient=True)
        pause = 0.002
        try:
            while not self._board.is_done(name):
                if self._board.failure() is not None:
                    raise self._lost("it ended")
                sleep(pause)
                pause = min(0.25, pause * 1.5)
        except dist.DistError as error:
            raise self._lost(str(error)) from error
        self.at(step, before)

    @contextmanager
    def _meeting(self, what: str) -> Iterator[None]:
        step, before = self.watchdog.where
        self.watchdog.at(step, what, meeting=True)
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # gloo's only kind of error: a peer has closed its connection
            raise self._lost(str(error)) from error
        self.watchdog.at(step, before)

    def _lost(self, why: str) -> RankLostError:
        """What to say where others do not answer: which they are, where they were, how to go on."""
        first_line = why.strip().split("\n", 1)[0][:200]
        step, doing = self.watchdog.where
        try:
            failure = self._board.failure()
            if failure is not None:
                return RankLostError(
                    f"rank {failure['rank']} ended the run at step {failure['step']}: {failure['text']}"
                )
            silent = self._board.silent()
            failure = self._board.failure()
            beats = self._board.beats()
        except RuntimeError:
            return RankLostError(
                f"Rank 0, with which all ranks report, is gone at step {step}: it was killed or crashed. Its log:"
                f" {self.output.path(0)}.{self.way_back()}"
            )
        if failure is not None:
            return RankLostError(f"rank {failure['rank']} ended the run at step {failure['step']}: {failure['text']}")
        if not silent:
            return RankLostError(f"The ranks lost each other at step {step} ({first_line}).{self.way_back()}")
        seen = "; ".join(
            f"rank {r} was last seen {beats[r] or 'nowhere'}, its log is {self.output.path(r)}" for r in silent
        )
        met = f"at step {step}" if step else "before the first step"
        return RankLostError(
            f"{ranks_named(silent).capitalize()} of {self.world} did not come to {doing} {met}: killed (did the machine"
            f" run out of memory?) or crashed. {seen[0].upper()}{seen[1:]}.{self.way_back()}"
        )
