"""What Dynotune raises at users.

Every error is a `ValueError`: the user gave something that cannot be carried out. The message names the thing, where it
stands (file, key, line) and what to do next. Invariants of our own are `assert`s, never these. `Interrupted` is no error.
"""

from pathlib import Path
from typing import Any

RESUMABLE = 75
"""Exit code of a run that saved and left before its end: sysexits' EX_TEMPFAIL, "try again". No signal and no error has it,
so a job script can queue the same command again on this code alone."""


class DynotuneError(ValueError):
    """The base of every error that a user can mend. Commands print its message without a traceback and exit with 2."""


class ConfigError(DynotuneError):
    """A configuration key, value, type or combination that cannot be honoured."""


class DataError(DynotuneError):
    """A data set, file or row that cannot be read, recognised or turned into label tokens."""


class TemplateError(DynotuneError):
    """A chat template or loss mask that is missing, broken or would train the wrong tokens."""


class ModelError(DynotuneError):
    """A model, tokenizer or adapter that cannot be loaded, or is not what was asked for."""


class TrainingError(DynotuneError):
    """A run that had to stop: its message says what state was kept and how to go on."""


class Interrupted(SystemExit):
    """A run saved and left before its end, because a signal or `max_time` asked for it.

    It is raised and not returned, so that no script takes a model that is half trained for the result. Not caught, it ends
    the process with exit code 75.
    """

    def __init__(self, text: str, *, why: str, step: int, checkpoint: Path, result: Any) -> None:
        super().__init__(text)
        self.code = RESUMABLE
        self.why, self.step, self.checkpoint = why, step, checkpoint
        self.result = result
        """The `RunResult`; its model is the one of `step`."""
