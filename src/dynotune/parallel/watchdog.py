"""Watches that ranks get on: a rank that waits for one that is stuck would wait for ever, and nobody would know for whom."""

import faulthandler
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from dynotune.parallel.board import MOVES, Beat, Board
from dynotune.parallel.launch import HUNG

GRACE = 60.0
"""Seconds within which a rank ends by itself once another one has failed, before it is ended: it may hang in a GPU's
collective, which never learns that a peer is gone."""

LEFT = 4 * MOVES
"""Seconds that ranks have to put their stacks into their logs once one of them has said that they hang."""

DEAD = 60.0
"""Seconds without a beat after which a process is taken for dead although nothing else says so."""


class Watchdog:
    """Posts this rank's progress in a thread of its own, and ends the process when ranks are stuck for `timeout` seconds."""

    def __init__(
        self,
        board: Board,
        timeout: float,
        tell: Callable[[str], None],
        log_of: Callable[[int], str],
        log: Callable[[], TextIO],
        way_back: Callable[[], str],
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """tell: says a sentence to the user, once for all ranks. log_of: where a rank's output goes, for people. log: this
        rank's, opened. way_back: how to go on, for people."""
        self.board, self.timeout, self.tell, self.log_of, self.log, self.end = board, timeout, tell, log_of, log, end
        self.way_back = way_back
        self._at = (0, "starting", time.monotonic(), True, False)
        self._count = 0
        self._stop = threading.Event()
        self._heard = [(-1, time.monotonic())] * board.world
        """By rank: the last count that was seen, and when."""
        self._failed_since: float | None = None
        self._notice: tuple[int, dict[str, Any]] = (0, {})
        """How many this rank has left, and the latest; one value, since another thread reads it."""
        self._carried = 0
        self._fetched: dict[int, int] = {}
        self.left: dict[int, dict[str, Any]] = {}
        """On the first rank: what others left last."""
        self._thread = threading.Thread(target=self._watch, name="dynotune-watchdog", daemon=True)

    def start(self) -> None:
        self._post()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)

    def at(self, step: int, doing: str, patient: bool = False, meeting: bool = False) -> None:
        """Progress. `patient`: what begins now may take however long; `meeting`: it waits for others."""
        self._at = step, doing, time.monotonic(), patient, meeting

    def leave(self, notice: dict[str, Any]) -> None:
        """For the first rank, which has it a moment later."""
        self._notice = self._notice[0] + 1, notice

    def join(self) -> None:
        """Let it end the process."""
        self._thread.join()

    @property
    def where(self) -> tuple[int, str]:
        """Step, and what is being done."""
        return self._at[:2]

    def _post(self) -> None:
        step, doing, since, patient, meeting = self._at
        self._count += 1
        left, notice = self._notice
        if left != self._carried:
            self.board.leave(notice)
            self._carried = left
        self.board.post(Beat(self._count, step, doing, time.monotonic() - since, patient, meeting, left))

    def _watch(self) -> None:
        while not self._stop.wait(min(MOVES, self.timeout / 4)):
            try:
                self._post()
                self._look()
            except RuntimeError as error:  # the store is gone, and with it whoever kept it
                # It ended, and this rank's own next meeting says why; only where that never comes is it ended here.
                if self._stop.wait(GRACE):
                    return
                self._end(f"the process that all ranks report to is gone ({error})", [])

    def _look(self) -> None:
        now, beats = time.monotonic(), self.board.beats()
        for rank, beat in enumerate(beats):
            if beat is not None and beat.count != self._heard[rank][0]:
                self._heard[rank] = beat.count, now
            if beat is not None and self.board.rank == 0 and rank and beat.notices != self._fetched.get(rank, 0):
                self._fetched[rank] = beat.notices
                self.left = {**self.left, rank: self.board.left_by(rank)}
        failure = self.board.failure()
        if failure is not None and failure.get("hung"):
            self._dump(f"{failure['text']}, said rank {failure['rank']}")
            time.sleep(LEFT)
            self.end(HUNG)
            return
        if failure is not None:
            self._failed_since = self._failed_since or now
            if now - self._failed_since > GRACE:
                self._dump(f"rank {failure['rank']} failed, and this rank did not come to its end within {GRACE:.0f} s")
                self.end(1)
            return
        dead = [rank for rank, (_, when) in enumerate(self._heard) if rank != self.board.rank and now - when > DEAD]
        if dead:
            self._end(f"nothing was heard of {ranks_named(dead)} for {DEAD:.0f} s", dead)
        elif behind := self._stuck(beats):
            self._end(f"no progress for {self.timeout:g} s (`ddp_timeout`)", behind)

    def _stuck(self, beats: Sequence[Beat | None]) -> list[int]:
        """The ranks that all others wait for, where that has been too long."""
        _, _, since, patient, _ = self._at
        if patient or time.monotonic() - since < self.timeout:
            return []
        known = {rank: beat for rank, beat in enumerate(beats) if beat is not None}
        # Those at the earliest step are waited for, and among them those that do not wait themselves.
        least = min((beat.step, beat.meeting) for beat in known.values())
        behind = [rank for rank, beat in known.items() if (beat.step, beat.meeting) == least]
        if any(known[rank].patient or known[rank].seconds < self.timeout for rank in behind):
            return []  # they do something of their own, which has its own time
        return behind

    def _end(self, why: str, behind: list[int]) -> None:
        beats = self.board.beats() if behind else []
        lines = [f"{why}."]
        lines += [f"Rank {r} is behind: {beats[r] or 'it never began'}. Its log: {self.log_of(r)}" for r in behind]
        step, doing = self.where
        lines.append(f"Rank {self.board.rank} was {Beat(0, step, doing, 0)}. The job ends.")
        text = "\n".join(lines)
        self._dump(text)
        first = True
        with suppress(RuntimeError):  # nobody may be left to agree with on who says it
            first = self.board.claim_failure({"step": step, "doing": doing, "text": why, "hung": True})
        if first:
            self.tell(text)
            threading.Thread(target=self._tell_way_back, name="dynotune-way-back", daemon=True).start()
        time.sleep(LEFT)
        self.end(HUNG)

    def _tell_way_back(self) -> None:
        """In a thread of its own: it looks at checkpoints, and a disk that hangs must not keep the job from its end."""
        with suppress(OSError):
            if way := self.way_back().strip():
                self.tell(way)

    def _dump(self, why: str) -> None:
        log = self.log()
        log.write(f"{why}\nPython stacks of rank {self.board.rank}:\n")
        log.flush()
        faulthandler.dump_traceback(file=log, all_threads=True)


def ranks_named(ranks: Sequence[int]) -> str:
    """`rank 3` or `ranks 1, 3`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
