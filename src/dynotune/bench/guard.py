"""What the device and the host did while a block ran, from samples of a process beside this one.

The samples go to a file without a name that is read between blocks, so that the measured process does nothing for them
while it is measured.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from dynotune.bench.result import Clocks
from dynotune.bench.sampler import REASONS

LONGEST_START = 10.0
"""Seconds."""

SEEN_SHARE = 0.1
"""Of the samples of a window in which a reason for lower clocks must stand to be said: the power cap comes and goes."""


class Guard:
    """Samples from `with` on. Times are those of `time.perf_counter`, one clock for all processes of a Linux host."""

    def __init__(self, gpu: str | None = None, own: Collection[int] = (), program: Path | None = None) -> None:
        """gpu: as NVML has it (`GPU-...`), or without the prefix, as PyTorch has it; None for a host without.

        own: processes that are expected on the GPU; this one, unless others are named. program: that samples.
        """
        self.gpu = "" if gpu is None else gpu if gpu.startswith(("GPU-", "MIG-")) else f"GPU-{gpu}"
        self.own = set(own) or {os.getpid()}
        self.program = program or Path(__file__).with_name("sampler.py")
        self.note = ""
        """What cannot be read, as a sentence."""

        self._samples: list[dict[str, Any]] = []
        self._rest = b""
        self._ended = False

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile()
        # Without the script's folder on the path: it holds a `statistics.py`, which the standard library has too.
        command = [sys.executable, "-P", str(self.program), self.gpu]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.PIPE)  # noqa: S603
        self._read_from = 0
        self._began = time.perf_counter()
        while not self._samples and self._process.poll() is None and time.perf_counter() < self._began + LONGEST_START:
            time.sleep(0.005)
            self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=5)  # closes its standard input, at which it ends
        except subprocess.TimeoutExpired:  # a driver that does not answer
            self._process.kill()
            self._process.communicate()
        self._file.close()

    def window(self, begin: float, end: float) -> Clocks:
        """Of what was sampled between two times of `time.perf_counter`. A window between two samples has none."""
        self._read()
        inside = [sample for sample in self._samples if begin <= sample["at"] <= end]
        if not inside:
            return Clocks()
        before = [sample for sample in self._samples if sample["at"] < begin][-1:]
        busy = _values(inside, "utilisation")
        return Clocks(
            samples=len(inside),
            sm_mhz=_mean(inside, "sm_mhz"),
            power_watts=_mean(inside, "power_watts"),
            celsius=_mean(inside, "celsius"),
            utilisation_mean=_mean(inside, "utilisation"),
            utilisation_p95=float(np.quantile(busy, 0.95)) if busy else None,
            throttled=_throttled(inside),
            other_processes=max(self._others(sample.get("processes", ())) for sample in inside),
            steal=_steal([*before, *inside]),
        )

    @property
    def cost(self) -> float:
        """Share of one processor's time that sampling has taken so far, its start left out."""
        self._read()
        if len(self._samples) < 2:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        return float((last["cost"] - first["cost"]) / (last["at"] - first["at"]))

    def _read(self) -> None:
        """Take in what was written since the last time."""
        new = os.pread(self._file.fileno(), 1 << 24, self._read_from)
        self._read_from += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            sample = json.loads(line)
            if "at" in sample:
                self._samples.append(sample)
            else:
                self.note = sample["note"]
        if self._process.poll() is not None and not self._ended:
            self._ended = True
            assert self._process.stderr is not None
            last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            why = last or f"exit code {self._process.returncode}"
            self.note = f"Nothing is known of clocks and other processes from here on: what reads them ended ({why})."

    def _others(self, processes: Sequence[int]) -> int:
        """In a container the numbers may be the host's, ours among them: then as many are taken for ours as there are."""
        known = sum(one in self.own for one in processes)
        return max(0, len(processes) - (known or len(self.own)))


def _values(samples: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [sample[name] for sample in samples if name in sample]


def _mean(samples: Sequence[dict[str, Any]], name: str) -> float | None:
    values = _values(samples, name)
    return sum(values) / len(values) if values else None


def _throttled(samples: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    masks = [sample["reasons"] for sample in samples if "reasons" in sample]
    return tuple(
        word
        for bit, word in REASONS.items()
        if masks and sum(bool(mask & bit) for mask in masks) > SEEN_SHARE * len(masks)
    )


def _steal(samples: Sequence[dict[str, Any]]) -> float | None:
    """Between the first sample and the last. None without time between them."""
    passed = samples[-1]["processors"] - samples[0]["processors"]
    return max(0.0, float((samples[-1]["steal"] - samples[0]["steal"]) / passed)) if passed > 0 else None
