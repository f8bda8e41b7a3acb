"""What a run knows of its machine: memory of the device by phase, the device's clocks, memory and time of the host."""

import os
import threading
import time
from typing import Any

import torch

from dynotune.measure.beside.beside import Beside
from dynotune.measure.beside.pauses import Pauses
from dynotune.measure.beside.seen import LOOKS_BACK, MachineSeen
from dynotune.measure.device_memory import GIB, Allocator, PhasePeaks
from dynotune.measure.resident import resident
from dynotune.measure.words import WARM_UP_STEPS
from dynotune.plan.plan import Step

AFTER = 1.0
"""Seconds after which sampling begins: a run that is over by then is not worth a process."""

INTERVAL = 1.0
"""Seconds between samples."""

LOOK = 2.0
"""Seconds between two looks at samples, memory and this process: rows that come more often repeat the latest one. It takes
the host a millisecond, as much as all else of the row."""

MOST = 3600
"""Samples between two rows that are kept, the latest: an hour."""

LONGEST = 1 << 21
"""Bytes of their file, which holds about as many."""

LATELY = 60.0
"""Seconds that signs are judged by where rows are written more often than that: between two of them may lie one sample."""

OFTEN = 5.0
"""Seconds after which what is known of them is gone through anew: it takes the host a third of a millisecond."""


class Surroundings:
    """Nothing is sampled before `begin`, so that a bench, which samples for itself, does it once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peaks: PhasePeaks | None = None
        self.seen = MachineSeen()
        """Of the time between the last two rows."""

        self.lately = MachineSeen()
        """Of the time up to a row that signs are judged by, of one not long ago."""

        self.pauses = Pauses()
        """When no training went on."""

        self._steps = 0
        self._beside: Beside | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._said = self._failed = ""
        self._since, self._busy = time.perf_counter(), _busy()
        self._next_lately = 0.0
        self._seen: dict[str, Any] = {}
        """Of the latest look: for rows."""

    def begin(self) -> None:
        """From here on the machine is looked at."""
        if self.device.type == "cuda":
            self.peaks = phase_peaks(self.device)
        self._since, self._busy = time.perf_counter(), _busy()
        self._timer = threading.Timer(AFTER, self._sample)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Stop sampling. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._beside is not None:
                self._beside.end()
                self._beside = None

    def step(self, step: Step) -> None:
        """A step begins."""
        self._steps += 1
        if self.peaks is None and self._steps > WARM_UP_STEPS + 1:
            return
        if self._steps == WARM_UP_STEPS + 1:
            self.pauses.warm(time.perf_counter())
            if self.peaks is not None:
                self.peaks.warm()
        if self.peaks is not None:
            self.peaks.step(max(batch.tokens for batch in step.micro_batches))

    def phase(self, phase: str) -> None:
        """From here on it is `phase` that goes on, `forward` for one."""
        if self.peaks is not None:
            self.peaks.begin("communication" if phase == "the sum of gradients" else phase)

    def ran_out(self) -> None:
        """Memory ran out, and what ran is taken again in less."""
        if self.peaks is not None:
            self.peaks.excuse()

    @property
    def own_seconds(self) -> float:
        """That looking at memory took of the host so far, but for rows."""
        return 0.0 if self.peaks is None else self.peaks.seconds

    @property
    def retries(self) -> int:
        """Of the allocator, behind the warm-up."""
        return 0 if self.peaks is None else self.peaks.retries

    @property
    def note(self) -> str:
        """What cannot be read here, as a sentence, once."""
        note = self._failed if self._beside is None else self._beside.note
        said, self._said = self._said, note or self._said
        return note if note != said else ""

    def row(self) -> dict[str, Any]:
        """What was known at the latest look, for metrics.jsonl; what cannot be read is left out."""
        now = time.perf_counter()
        if not self._seen or now - self._since >= LOOK:
            machine = self._look(now)
            memory = {} if self.peaks is None else self.peaks.figures(self.seen.memory_used)
            self._seen = memory | machine
        return dict(self._seen)

    def _look(self, now: float) -> dict[str, Any]:
        """At the machine: its figures."""
        busy = _busy()
        with self._lock:
            if self._beside is None:
                seen = MachineSeen()
            else:
                self._beside.read()
                seen = self._beside.known(self._since, now)
                if now >= self._next_lately:
                    self._next_lately = now + OFTEN
                    self.lately = self._beside.known(min(self._since, now - LATELY), now, self.pauses.trained)
                    self._beside.forget(now - LATELY)
                    self.pauses.forget(now - LATELY - LOOKS_BACK)
        self.seen = seen
        cpu = seen.cpu if seen.cpu is not None else (busy - self._busy) / max(now - self._since, 1e-9)
        self._since, self._busy = now, busy
        figures = {
            "gpu/utilisation": seen.utilisation_mean,
            "gpu/sm_mhz": seen.sm_mhz,
            "gpu/power_watts": seen.power_watts,
            "gpu/celsius": seen.celsius_max,
            "gpu/throttled": ", ".join(seen.throttled) or None,
            "gpu/other_processes": seen.other_processes or None,
            "host/rss_gib": resident() / GIB,
            "host/workers_rss_gib": _gib(seen.workers_rss),
            "host/available_gib": _gib(seen.host_available),
            "host/cpus_busy": cpu,
            "host/steal": seen.steal or None,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def _sample(self) -> None:
        with self._lock:
            if self._timer is None or self._beside is not None:
                return
            uuid = str(torch.cuda.get_device_properties(self.device).uuid) if self.device.type == "cuda" else None
            beside = Beside(uuid, interval=INTERVAL, watched=os.getpid(), most=MOST, longest=LONGEST)
            try:
                beside.begin()
            except OSError as error:  # no room for another process or its file: the run needs neither
                self._failed = (
                    f"Nothing is known of clocks and other processes: what reads them did not begin ({error})."
                )
                return
            self._beside = beside


def phase_peaks(device: torch.device) -> PhasePeaks:
    """By PyTorch's allocator."""
    return PhasePeaks(
        torch.cuda.get_device_properties(device).total_memory,
        lambda: Allocator.of(torch.cuda.memory_stats_as_nested_dict(device)),
        lambda: torch.cuda.reset_peak_memory_stats(device),
    )


def _busy() -> float:
    """Seconds of processors that this process took so far."""
    times = os.times()
    return times.user + times.system


def _gib(value: int | None) -> float | None:
    return None if value is None else value / GIB
