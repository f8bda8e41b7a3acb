"""Steps that are timed, by the device's own clock where there is one: its events are read once all of them are behind it."""

from contextlib import suppress
from typing import Any

import torch

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.profile.foreign.inside.listen import Between


class TimedSteps:
    """As fields of the record, with what was seen between their two ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.taken: list[dict[str, Any]] = []
        self.seen: list[Between] = []
        self._between: list[tuple[Any, Any]] = []
        """Device events around each step."""

    def __len__(self) -> int:
        return len(self.taken)

    def begin(self) -> None:
        """A step begins."""
        self._between.append((self._event(), None))

    def take(self, number: int, seconds: float, seen: Between, compilations: int, loads: bool) -> None:
        """It is over. seconds: by the host's clock. loads: whether a loader is known, so that waits for it are."""
        self._between[-1] = (self._between[-1][0], self._event())
        self.seen.append(seen)
        seconds -= seen.within
        self.taken.append(
            {
                "number": number,
                "seconds": seconds,
                "host_seconds": seconds,
                "data_wait": seen.data_wait if loads else None,
                "happened": list(dict.fromkeys(seen.happened)),
                "compilations": compilations,
            }
        )

    def read(self) -> list[str]:
        """Put the device's seconds and the batches' tokens in. A step that the clock cannot tell is no timed step: what the
        host took to ask for its work is another figure. Returns notes."""
        notes, told = [], []
        try:
            wait_for(self.device)  # a script that ends by itself need not have waited
        except FOREIGN as error:
            notes.append(f"The device failed before the script ended: {in_a_line(error)}.")
        for one, seen, (begin, end) in zip(self.taken, self.seen, self._between, strict=False):
            with suppress(*FOREIGN):
                seconds = one["seconds"] if end is None else begin.elapsed_time(end) / 1e3
                told.append((one | {"seconds": seconds}, seen))
        if len(told) < len(self):
            lost = len(self) - len(told)
            notes.append(f"The device's clock tells nothing of {lost} of {len(self)} steps: they are left out.")
        self.taken, self.seen = [one | _tokens(seen) for one, seen in told], [seen for _, seen in told]
        return notes

    def mean(self, name: str) -> float | None:
        """Of a figure of `Between`."""
        found = [getattr(one, name) for one in self.seen]
        return sum(found) / len(found) if found else None

    def _event(self) -> Any:
        if self.device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))  # another device may be the current one
        return event


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _tokens(seen: Between) -> dict[str, int | None]:
    """Of a step; None where a batch does not tell."""
    counts = [one.read() for one in seen.batches]

    def total(name: str) -> int | None:
        found = [one.get(name) for one in counts]
        return sum(one for one in found if one is not None) if found and None not in found else None

    return {"real_tokens": total("real"), "processed_tokens": total("processed"), "label_tokens": total("labels")}
