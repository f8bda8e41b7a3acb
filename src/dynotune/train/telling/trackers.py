"""Sending metrics to experiment trackers (`report_to`), through accelerate's tracker classes.

Each tracker lives in a thread of its own, because several of them talk to a server inside `log`: training hands over
numbers and goes on. What a tracker cannot take is counted and said once; it never stops the run, whose own record is
`metrics.jsonl`.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from os import environ
from pathlib import Path
from typing import Any

from rich.console import Console

from dynotune.config.secrets import without_secrets
from dynotune.errors import ConfigError

START_SECONDS = 120.0
"""How long a tracker may take to log in and open its run before the run is refused."""

FINISH_SECONDS = 60.0
"""How long the end of a run waits for lines that are still on their way, over all trackers."""

AT_ONCE = 3.0
"""The same where somebody waits for the process to end: schedulers give a process that they stop half a minute."""

MAX_PENDING = 1_000
"""Log lines that may wait for a slow tracker; beyond that the newest are dropped and counted."""

PACKAGES = {"comet_ml": "comet-ml"}
"""Where the package is not called what the tracker is called."""

PROJECT_VARIABLES = {"wandb": "WANDB_PROJECT", "comet_ml": "COMET_PROJECT_NAME"}
"""Environment variables that transformers honours where `project` is not given."""

DEFAULT_PROJECT = "huggingface"


class Trackers:
    """The trackers that a run reports to. Construct on the main process only.

    Args:
        report_to: `none`, `all` (every installed one), a name or a list of names, as in transformers.
        project, run_name: names in trackers that have them.
        folder: the run folder; TensorBoard and others that write files write below it.
        config: shown as the run's settings. Keys that look like a secret are left out.
        say: receives one sentence per problem.

    Raises:
        ConfigError: an unknown tracker, one that is not installed, or one that cannot start (not logged in, no server).
    """

    def __init__(
        self,
        report_to: list[str] | str,
        project: str,
        run_name: str,
        folder: Path,
        config: Mapping[str, Any],
        *,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._say = say or Console(stderr=True).print
        self._lanes: list[_Lane] = []
        for name in tracker_names(report_to):
            lane = _Lane(name, self._say)
            try:
                lane.start(partial(_open, name, project, run_name, folder, dict(config)))
            except ConfigError:
                self.finish()
                raise
            self._lanes.append(lane)

    @property
    def names(self) -> list[str]:
        """The trackers that were opened."""
        return [lane.name for lane in self._lanes]

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Hand a line's numbers over, named as in transformers (`train/loss`, `eval/loss`). Never waits or raises."""
        if not self._lanes:
            return
        numbers = {key: value for key, value in metrics.items() if key != "step" and isinstance(value, (int, float))}
        if not numbers:
            return
        from transformers.integrations.integration_utils import rewrite_logs

        values: dict[str, float] = rewrite_logs(numbers) | {"train/global_step": step}
        for lane in self._lanes:
            lane.log(values, step)

    def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """Close every tracker, waiting at most `seconds` in all; says what was not sent. May be called twice."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.finish(deadline)
        self._lanes = []


def tracker_names(report_to: list[str] | str) -> list[str]:
    """The trackers that `report_to` means, in its order.

    Raises:
        ConfigError: an unknown tracker or one that is not installed.
    """
    asked = [report_to] if isinstance(report_to, str) else list(report_to)
    asked = list(dict.fromkeys(name.strip() for name in asked if name.strip() not in ("none", "")))
    if not asked:
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
    from accelerate.utils import LoggerType

    known = [str(name) for name in LOGGER_TYPE_TO_CLASS]
    installed = [str(name) for name in get_available_trackers()]
    # Trackers that the user's own code registered with accelerate have no package to look for.
    installed += [name for name in known if name not in LoggerType.list()]
    if "all" in asked:
        return [name for name in installed if name in LoggerType.list()]
    for name in asked:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"report_to: {name!r} is not a tracker.{hint} Known: {', '.join(sorted(known))}, `all`, `none`."
            )
        if name not in installed:
            package = PACKAGES.get(name, name)
            raise ConfigError(
                f"report_to: {name} is not installed. `pip install {package}`, or take it out of `report_to`."
            )
    return asked


class _Lane:
    """One tracker and the thread in which all its calls happen (mlflow and trackio keep the open run per thread)."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.name = name
        self._say = say
        # ThreadPool's threads are daemons, so a call that hangs cannot keep the process from ending.
        self._pool = ThreadPool(1)
        self._tracker: Any = None
        self._pending: list[AsyncResult[None]] = []
        self._lost = 0
        self._reason = ""

    def start(self, open_tracker: Callable[[], Any]) -> None:
        errors: list[BaseException] = []
        opened = self._pool.apply_async(open_tracker, error_callback=errors.append)
        opened.wait(START_SECONDS)
        if not opened.ready():
            raise ConfigError(
                f"report_to: {self.name} did not start within {START_SECONDS:.0f} s. Is its server reachable? "
                "Take it out of `report_to` to run without it."
            )
        if not opened.successful():
            reason = _describe(errors[0]) if errors else "no reason given"
            raise ConfigError(
                f"report_to: {self.name} could not start: {reason}. Log in or switch it to its offline mode, or take "
                "it out of `report_to`."
            ) from (errors[0] if errors else None)
        self._tracker = opened.get(0)

    def log(self, values: dict[str, float], step: int) -> None:
        self._pending = [result for result in self._pending if not result.ready()]
        if len(self._pending) >= MAX_PENDING:
            self._lose(f"more than {MAX_PENDING:,} lines wait for it")
            return
        self._pending.append(
            self._pool.apply_async(self._tracker.log, (values,), {"step": step}, error_callback=self._failed)
        )

    def finish(self, deadline: float) -> None:
        if self._tracker is not None:
            closed = self._pool.apply_async(self._tracker.finish, error_callback=self._failed)
            closed.wait(max(0.0, deadline - time.monotonic()))
            if not closed.ready():
                unsent = sum(not result.ready() for result in self._pending)
                self._say(
                    f"{self.name} did not finish in time: {unsent} log lines were not sent. They are in metrics.jsonl."
                )
        self._pool.close()
        if self._lost:
            self._say(f"{self.name} took {self._lost} log lines less than were logged ({self._reason}).")

    def _failed(self, error: BaseException) -> None:
        self._lose(_describe(error))

    def _lose(self, reason: str) -> None:
        self._lost += 1
        if self._lost == 1:
            self._reason = reason
            self._say(f"{self.name} did not take a log line: {reason}. Training goes on; metrics.jsonl has every line.")


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _open(name: str, project: str, run_name: str, folder: Path, config: dict[str, Any]) -> Any:
    """Open one tracker. Runs in the tracker's thread, where anything that it raises ends in `start`."""
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # accelerate's trackers ask it which process they are in
    variable = PROJECT_VARIABLES.get(name)
    if variable and project == DEFAULT_PROJECT:
        project = environ.get(variable, project)
    tracker_class: Any = LOGGER_TYPE_TO_CLASS[name]
    if name == "tensorboard":
        tracker = tracker_class("tensorboard", logging_dir=str(folder))
    elif tracker_class.requires_logging_directory:
        tracker = tracker_class(project, logging_dir=str(folder / name))
    else:
        names = {"wandb": "name", "trackio": "name", "mlflow": "run_name", "swanlab": "experiment_name"}
        names["clearml"] = "task_name"
        options = {names[name]: run_name} if name in names else {}
        if name == "wandb":
            options["dir"] = str(folder)
        if name == "dvclive":
            options["dir"] = str(folder / name)
        tracker = tracker_class(project, **options)
    tracker.start()
    settings = loggable_settings(config)
    if name == "tensorboard":
        # Its hyper-parameter writer opens a second run in a folder of its own, which shows up as an empty curve.
        lines = "\n".join(f"    {key}: {value}" for key, value in settings.items())
        tracker.log({"config": lines}, step=0)
    else:
        tracker.store_init_configuration(settings)
    if name == "comet_ml":
        tracker.tracker.set_name(run_name)
    return tracker


def loggable_settings(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The settings as scalars, which is what all trackers take: lists and maps as JSON; nothing unset, no secrets."""
    settings: dict[str, bool | int | float | str] = {}
    for key, value in without_secrets(config).items():
        if value is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            settings[key] = str(value)
        elif isinstance(value, (bool, int, float, str)):
            settings[key] = value
        else:
            settings[key] = json.dumps(value, default=str)
    return settings
