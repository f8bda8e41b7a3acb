"""The process that samples the device and the host while this one works, and what it has written so far.

The samples go to a file without a name that is read now and then, so that the measured process does nothing for them while
it is measured.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dynotune.measure.beside.sampler import LONGEST
from dynotune.measure.beside.seen import MachineSeen, seen

LONGEST_START = 10.0
"""Seconds."""

LONGEST_END = 5.0
"""Seconds."""

MOST = 100_000
"""Samples that are kept, the latest: three hours of a bench."""


class Beside:
    """Samples from `begin` or `with` on. Times are those of `time.perf_counter`, one clock for all processes of a Linux
    host."""

    def __init__(
        self,
        gpu: str | None = None,
        own: Collection[int] = (),
        program: Path | None = None,
        *,
        interval: float = 0.1,
        watched: int | None = None,
        most: int = MOST,
        longest: int = LONGEST,
    ) -> None:
        """gpu: as NVML has it (`GPU-...`), or without the prefix, as PyTorch has it; None for a host without.

        own: processes that are expected on the GPU; this one, unless others are named. program: that samples. interval:
        seconds between samples. watched: a process whose memory and processor time are sampled, with those it started. most:
        samples that are kept. longest: bytes of their file, which the sampler keeps to whether anybody reads it or not.
        """
        self.gpu = "" if gpu is None else gpu if gpu.startswith(("GPU-", "MIG-")) else f"GPU-{gpu}"
        self.own = set(own) or {os.getpid()}
        self.program = program or Path(__file__).with_name("sampler.py")
        self.interval, self.watched, self.longest = interval, watched, longest
        self.note = ""
        """What cannot be read, as a sentence."""

        self._samples: deque[dict[str, Any]] = deque(maxlen=most)
        self._rest = b""
        self._head = b"", 0
        """The file's first line, and what it says."""

        self._ended = False
        self._first: dict[str, Any] | None = None

    def begin(self) -> None:
        """Start the process; its first sample is not waited for. Raises OSError where there is no room for it or its file;
        then nothing is left of either."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open until `end`
        # Without the script's folder on the path: what lies there may have names of the standard library.
        command = [sys.executable, "-P", str(self.program), self.gpu, str(self.interval)]
        command += ["" if self.watched is None else str(self.watched), str(self.longest)]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.PIPE
            )
        except OSError:
            self._file.close()
            raise
        self._read_from = self._cuts = 0
        self._began = time.perf_counter()

    def end(self) -> None:
        """Stop it."""
        try:
            self._process.communicate(timeout=LONGEST_END)  # closes its standard input, at which it ends
        except subprocess.TimeoutExpired:  # a driver that does not answer
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # within the driver it hears of that only when the driver answers
                self._process.communicate(timeout=LONGEST_END)
        self._file.close()

    def __enter__(self) -> Self:
        self.begin()
        while not self._samples and self._process.poll() is None and time.perf_counter() < self._began + LONGEST_START:
            time.sleep(0.005)
            self.read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def between(
        self, begin: float, end: float, trained: Callable[[float, float], bool] = lambda begin, end: True
    ) -> MachineSeen:
        """What was sampled between two times of `time.perf_counter`, up to now. A window between two samples has none.
        trained: see `seen`."""
        self.read()
        return self.known(begin, end, trained)

    def known(
        self, begin: float, end: float, trained: Callable[[float, float], bool] = lambda begin, end: True
    ) -> MachineSeen:
        """The same of what was read last."""
        inside: list[dict[str, Any]] = []
        before: list[dict[str, Any]] = []
        for sample in reversed(self._samples):
            if sample["at"] < begin:
                before = [sample]
                break
            if sample["at"] <= end:
                inside.append(sample)
        return seen(inside[::-1], before, self.others, trained)

    def forget(self, before: float) -> None:
        """Samples ahead of a time are not asked for any more, but the last of them, which the next stretch begins with."""
        while len(self._samples) > 1 and self._samples[1]["at"] < before:
            self._samples.popleft()

    @property
    def cost(self) -> float:
        """Share of one processor's time that sampling has taken so far, its start left out."""
        self.read()
        if self._first is None or len(self._samples) < 2:
            return 0.0
        first, last = self._first, self._samples[-1]
        return float((last["cost"] - first["cost"]) / (last["at"] - first["at"]))

    def read(self) -> None:
        """Take in what was written since the last time."""
        new = self._new()
        cuts = self._cut()
        if cuts != self._cuts:  # the file began anew; what is in it again is known by its time
            self._cuts, self._read_from, self._rest = cuts, 0, b""
            new = self._new()
            if self._cut() != cuts:  # while it was read: the next time has it
                return
        self._read_from += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            try:
                sample = json.loads(line)
            except ValueError:  # a disk that is full takes half a line
                continue
            if "at" in sample:
                if self._samples and sample["at"] <= self._samples[-1]["at"]:
                    continue
                self._samples.append(sample)
                self._first = self._first or sample
            else:
                self.note = sample["note"]
        if self._process.poll() is not None and not self._ended:
            self._ended = True
            assert self._process.stderr is not None
            last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            why = last or f"exit code {self._process.returncode}"
            self.note = f"Nothing is known of clocks and other processes from here on: what reads them ended ({why})."

    def _new(self) -> bytes:
        """What stands in the file behind what was read."""
        file = self._file.fileno()
        return os.pread(file, max(0, os.fstat(file).st_size - self._read_from), self._read_from)

    def _cut(self) -> int:
        """How often the file began anew, which its first line says."""
        head = os.pread(self._file.fileno(), 1024, 0).partition(b"\n")[0]
        if head != self._head[0]:
            try:
                self._head = head, int(json.loads(head).get("cuts", 0))
            except (ValueError, AttributeError):  # nothing is there yet, or just then
                return self._cuts
        return self._head[1]

    def others(self, processes: Sequence[int]) -> int:
        """In a container the numbers may be the host's, ours among them: then as many are taken for ours as there are."""
        known = sum(one in self.own for one in processes)
        return max(0, len(processes) - (known or len(self.own)))
