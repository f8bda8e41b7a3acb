"""Steps of the script under the profiler, with the calls of its model, its backward passes and its updates marked."""

from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import nn

from dynotune.foreign import in_a_line
from dynotune.measure.traces.step import NOT_TRACING, Tracer
from dynotune.profile.foreign.inside.listen import Between, Listening
from dynotune.profile.foreign.inside.places import places_of
from dynotune.profile.foreign.inside.reads import Reads

ENTRIES = 200_000
"""Of a history of memory."""


class Tracing:
    """What is kept of the last traced step. Where the profiler fails, the timed steps remain, and it is said why.

    A hook of an optimizer runs inside a range of the profiler's, and a profiler that is stopped in an open range writes into
    memory that it has given back. So a traced step begins and ends at the next quiet place behind an update: a batch is
    asked for, the model is called, or, where neither can be seen, a backward pass begins.
    """

    def __init__(self, listening: Listening, model: nn.Module | None, device: torch.device, snapshot: str = "") -> None:
        """snapshot: file for PyTorch's memory viewer."""
        self.snapshot = snapshot if device.type == "cuda" else ""
        self.listening, self.model, self.device = listening, model, device
        self.traced: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.wants_to_begin = self.wants_to_end = False
        self.number = 0
        self._seen = Between()
        self._open = ExitStack()
        self._step: Any = None
        self._reads = Reads()
        self._update: AbstractContextManager[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a step is being traced."""
        return self._step is not None

    def begin(self, number: int) -> None:
        """In a quiet place. Raises what a profiler or model does that does not fit."""
        self.wants_to_begin = False
        self.number = number
        self._open, self._reads = ExitStack(), Reads()
        model = self.model if self.model is not None else nn.Module()
        tracer = Tracer(model, places_of(model), self.device)
        if self.snapshot:
            torch.cuda.memory._record_memory_history(max_entries=ENTRIES)
            self._open.callback(torch.cuda.memory._record_memory_history, enabled=None)
        self._step = self._open.enter_context(tracer.step(number, {}))
        self._open.enter_context(self._reads)
        self.listening.marks, self.listening.lengths = self._step, True

    def before_update(self) -> None:
        if self._step is not None:
            self._update = self._step.update()
            self._update.__enter__()

    def after_update(self, seen: Between) -> None:
        """The step is over but for what stands between this place and a quiet one."""
        if self._update is not None:
            self._update.__exit__(None, None, None)
            self._update = None
        self._seen, self.wants_to_end = seen, True

    def end(self) -> None:
        """In a quiet place. Raises as `begin`."""
        step = self._step
        if self.snapshot:
            torch.cuda.memory._dump_snapshot(self.snapshot)
        self.leave()
        self.traced = [self._kept(step, self._seen)]

    def leave(self) -> None:
        """Nothing is traced from here on."""
        self.wants_to_begin = self.wants_to_end = False
        self._step = None
        self.listening.marks, self.listening.lengths = NOT_TRACING, False
        self._open.close()

    def failed(self, error: BaseException) -> None:
        self.notes.append(
            f"No step could be traced ({in_a_line(error)}): nothing is said of what ran inside of a step."
        )

    def _kept(self, step: Any, seen: Between) -> dict[str, Any]:
        from dynotune.profile.records.columns import events_to_json, where_to_json

        evidence = step.evidence
        if step.events is None:
            raise RuntimeError(evidence.facts.get("not_traced", "the profiler saw nothing"))
        batches = [one.read() for one in seen.batches]
        tokens = [one["processed"] or 0 for one in batches]
        return {
            "number": self.number,
            "events": events_to_json(step.events),
            "where": where_to_json(step.where),
            "micro_batches": max(step.micro_batches, 1),
            "watched": sorted(evidence.watched),
            "lengths": [length for one in batches for length in one["lengths"]],
            "real_tokens": _total(batches, "real"),
            "processed_tokens": sum(tokens) or None,
            "label_tokens": _total(batches, "labels"),
            "facts": {**evidence.facts, "tokens": tokens, "reads": self._reads.to_json()},
        }


def _total(batches: list[dict[str, Any]], name: str) -> int | None:
    found = [one.get(name) for one in batches]
    return sum(found) if found and None not in found else None  # type: ignore[arg-type]
