"""From a script's first optimizer step to what was observed: warming up, timed steps, traced steps, and then it is stopped
or left alone.

A step is from the end of one update to the end of the next, so everything between is in it. Our own work at its end is not:
the clock stands still for it, on the device too.
"""

import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from dynotune.foreign import FOREIGN
from dynotune.measure.compiles import limit, limits_met
from dynotune.measure.steady import LEVEL_STEPS, WarmingUp
from dynotune.measure.traces.facts import compile_counters
from dynotune.profile.foreign.inside import facts, trainer
from dynotune.profile.foreign.inside.found import Found, look_for
from dynotune.profile.foreign.inside.listen import Between, Fail, Listening
from dynotune.profile.foreign.inside.timed import TimedSteps, wait_for
from dynotune.profile.foreign.inside.tracing import Tracing
from dynotune.profile.foreign.protocol import STOPPED, Asked, tell, write_observed
from dynotune.profile.records.facts import inner_model, memory_of, optimizer_name

WITH_OTHERS = 10
"""Steps of warming up where ranks step together: they must all stop at the same one, and a rule reads each its own clock."""

AGAIN = 3
"""Times that a script is stopped which catches it and goes on."""


class Stage(Enum):
    """What the next step is for."""

    WARMING = "warming up"
    TIMED = "timed"
    TRACED = "traced"
    OVER = "over"


class Watch:
    """One process of the script."""

    def __init__(self, folder: Path, asked: Asked, fail: Fail) -> None:
        """fail: called with what we did wrong where no hook of an optimizer is around."""
        self.folder, self.asked, self.fail = folder, asked, fail
        self.stage = Stage.WARMING
        self.clock: int | None = None
        """Which optimizer's steps count: that of the first one."""

        self.others: set[int] = set()
        self.steps = self.stops = 0
        self.at_end = False
        """Whether the script has ended by itself."""

        self.began = 0.0
        self.notes: list[str] = []
        self._updating = 0.0
        self._undo: list[Callable[[], None]] = []

    # --- hooks ---------------------------------------------------------------------------------------------------------

    def before_update(self, optimizer: Any) -> None:
        if id(optimizer) != self.clock or self.stage is Stage.OVER:
            return
        self.tracing.before_update()
        self._updating = time.perf_counter()

    def after_update(self, optimizer: Any) -> None:
        entered = time.perf_counter()
        if self.clock is None:
            self._first(optimizer)
        elif id(optimizer) != self.clock:
            self.others.add(id(optimizer))
            return
        elif self.stage is Stage.OVER:
            self._stop_again()
            return
        else:
            self.listening.now.update += entered - self._updating
            self._one_more(entered)
        self.began = time.perf_counter()
        if self.stage is Stage.TIMED:
            self.listening.now.own += self.began - entered
            self.timed.begin()

    def script_ends(self) -> None:
        """By itself, before everything was seen: nothing is stopped, and no further step is traced."""
        if self.stage is Stage.OVER:
            return
        self.at_end = True
        if self.tracing.wants_to_end:
            self.to_trace = 1
            self.quiet()
        else:
            self._finish("script")

    def leave(self) -> None:
        """Take every hook out that can be; those of optimizers do nothing from here on."""
        self.stage = Stage.OVER
        while self._undo:
            self._undo.pop()()

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _first(self, optimizer: Any) -> None:
        self.clock, self.optimizer, self.steps = id(optimizer), optimizer, 1
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = parameters[0].device if parameters else torch.device("cpu")
        self.timed = TimedSteps(self.device)
        self.found: Found = look_for(parameters)
        if not self.found.roots:
            self.notes.append("The model was not found among the objects of the script: nothing is said of it.")
        model = inner_model(self.found.roots)
        config = getattr(model, "config", None)
        pad = getattr(config, "pad_token_id", None)
        self.listening = Listening(self.found.roots, pad if isinstance(pad, int) else None, self.quiet, self.fail)
        self.tracing = Tracing(self.listening, model, self.device, "" if facts.rank() else self.asked.snapshot)
        self._undo += [self.listening.stop, self.tracing.leave]
        if self.found.trainer is not None:
            self.found.trainer.add_callback(trainer.Happenings(lambda what: self.listening.now.happened.append(what)))
        self._plan()
        self.warming = WarmingUp(self._counters(), most_steps=self.most_warm)

    def _plan(self) -> None:
        """How many steps each stage has."""
        self.wanted, self.to_trace = self.asked.steps, self.asked.traced
        self.by_rule = self.asked.warm_up is None and facts.world() == 1
        self.most_warm = self.asked.warm_up or (50 if self.by_rule else WITH_OTHERS)
        total = trainer.steps_in_all(self.found.trainer)
        if total is None or total >= self.most_warm + self.wanted + self.to_trace + 1:
            return
        left = max(total - 1 - self.to_trace, 0)
        self.most_warm = min(self.most_warm, max(left // 3, 1))
        if self.wanted > left - self.most_warm:
            self.wanted = max(left - self.most_warm, 1)
            self.notes.append(f"The script takes {total} steps in all: {self.wanted} of them are timed.")

    def _one_more(self, entered: float) -> None:
        seconds = entered - self.began
        self.steps += 1
        seen = self.listening.next_step()
        if self.stage is Stage.WARMING:
            self._warm(seconds, seen)
        elif self.stage is Stage.TIMED:
            self._take(seconds, seen)
        elif self.stage is Stage.TRACED:
            self._traced(seen)

    def _warm(self, seconds: float, seen: Between) -> None:
        work = float(sum(one.processed or 0 for one in seen.batches)) or 1.0
        self.warming.step(seconds, self._counters(), work)
        if self.warming.over and (self.by_rule or self.warming.steps >= self.most_warm):
            self.stage = Stage.TIMED
            self.compiled = self._counters()
            wait_for(self.device)

    def _take(self, seconds: float, seen: Between) -> None:
        now = self._counters()
        compilations = now.get("compilations", 0) - self.compiled.get("compilations", 0)
        self.compiled = now
        self.timed.take(self.steps, seconds, seen, compilations, self.listening.loader is not None)
        if len(self.timed) >= self.wanted:
            wait_for(self.device)
            self._trace_or_finish()

    def _trace_or_finish(self) -> None:
        self.stage = Stage.TRACED
        if self.to_trace > 0:
            self.tracing.wants_to_begin = True
        else:
            self._finish("steps")

    def _traced(self, seen: Between) -> None:
        if self.tracing.is_open:
            self.tracing.after_update(seen)
        else:
            self.notes.append("No step could be traced: no batch, model or gradient was asked for behind an update.")
            self._finish("steps")

    def quiet(self) -> None:
        """No range of a profiler is open: traced steps begin and end here."""
        if not (self.tracing.wants_to_begin or self.tracing.wants_to_end):
            return
        try:
            if self.tracing.wants_to_end:
                self.to_trace -= 1
                self.tracing.end()
                if self.to_trace > 0:
                    self.tracing.wants_to_begin = True
            if self.tracing.wants_to_begin:
                self.tracing.begin(self.steps + 1)
                return
        except FOREIGN as error:
            self.tracing.leave()
            self.tracing.failed(error)
        self._finish("steps")

    # --- the end -------------------------------------------------------------------------------------------------------

    def _finish(self, ended: str) -> None:
        self.leave()
        self.notes += self.timed.read()
        write_observed(self.folder, self._observed(ended))
        tell(self.folder, "observed", ended=ended)
        if ended == "steps" and self.asked.stop and not self.at_end:
            self._stop_again()

    def _stop_again(self) -> None:
        if not self.asked.stop or self.stops >= AGAIN:
            return
        self.stops += 1
        if self.stops == 1:
            sys.stderr.write("\n" + STOPPED.format(steps=self.steps) + "\n")  # behind a progress bar
        tell(self.folder, "stopped", times=self.stops)
        raise SystemExit(0)

    def _observed(self, ended: str) -> dict[str, Any]:
        """The record's fields, and under `foreign` what it has none for."""
        if self.others:
            several = f"{1 + len(self.others)} optimizers step: a step is from one of the first one's to the next."
            self.notes.append(several)
        model, seen = inner_model(self.found.roots), self.timed.seen
        return {
            "rank": facts.rank(),
            "trainer": trainer.whose(self.found.trainer),
            "method": trainer.method(self.found.trainer),
            "timed": self.timed.taken,
            "traced": self.tracing.traced,
            "environment": facts.environment(self.device, self.listening.loader, self.found.trainer, model),
            "model": {
                **facts.model_facts(self.found.roots, self.listening.autocast, self.found.trainer),
                "evaluation_mode": self.listening.in_evaluation and not self.listening.in_training,
            },
            "memory": memory_of(self.device),
            "warm_up": {
                "steps": self.warming.steps,
                "seconds": self.warming.seconds,
                "events": self.warming.events,
                # Fewer steps than the rule needs were asked for: it has nothing to say of them.
                "note": self.warming.note if self.by_rule or self.warming.steps >= 2 * LEVEL_STEPS else "",
                "compiled": self.warming.compiled,
                "limits_met": limits_met(),
                "limit": limit(),
            },
            "optimizer": optimizer_name(self.optimizer),
            "notes": [*self.notes, *self.tracing.notes],
            "foreign": {
                "ended": ended,
                "steps": self.steps,
                "optimizer": facts.optimizer_facts(self.optimizer),
                "arguments": trainer.arguments(self.found.trainer),
                "model_module": type(model).__module__ if model is not None else "",
                "own_seconds": self.timed.mean("own"),
                **{name: self.timed.mean(name) for name in ("forward", "backward", "update")},
                "batches": [one.read() for one in seen[-1].batches[:8]] if seen else [],
                "arguments_of_calls": sorted({key for one in seen for each in one.batches for key in each.keys}),
                "calls_without_gradient": self.timed.mean("without_gradient"),
                "modules": sorted(one for one in ("deepspeed", "lightning", "unsloth", "trl") if one in sys.modules),
            },
        }

    # --- the device ----------------------------------------------------------------------------------------------------

    def _counters(self) -> dict[str, int]:
        """What moves while a script is not warm yet. Dynamo is not imported where the script has not done so."""
        found = {"compilations": compile_counters().get("stats", {}).get("unique_graphs", 0)}
        if self.device.type == "cuda":
            stats = torch.cuda.memory_stats(self.device)
            found["segments"] = int(stats.get("segment.all.allocated", 0))
            found["retries"] = int(stats.get("num_alloc_retries", 0))
        return found
