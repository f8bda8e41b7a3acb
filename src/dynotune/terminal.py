"""What libraries log and warn of, and tracebacks: made fit for a terminal.

Libraries repeat names from models, tokenizers and data as they stand there (`You are using a model of type ...`), and a name
can be a sequence that the terminal obeys. Only the commands use this: in a Python program, logging is the program's own.
"""

import logging
import sys
import threading
import traceback
import warnings
from types import TracebackType
from typing import Any

from dynotune.printable import printable


def printable_lines(text: str) -> str:
    """Every line with everything but printable characters escaped."""
    return "\n".join(printable(line) for line in text.expandtabs(4).split("\n"))


class _Record(logging.LogRecord):
    """Whatever logger and handler: the message is escaped before any of them formats it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.exc_info, tuple) and self.exc_info[0] is not None:
            self.exc_text = printable_lines("".join(traceback.format_exception(*self.exc_info))).rstrip()

    def getMessage(self) -> str:  # noqa: N802  (logging's name)
        return printable_lines(super().getMessage())


def guard() -> None:
    """From now on, in this process."""
    logging.setLogRecordFactory(_Record)
    told = warnings.formatwarning

    def formatwarning(*args: Any, **kwargs: Any) -> str:
        return printable_lines(told(*args, **kwargs))

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(printable_lines("".join(traceback.format_exception(kind, error, trace))))

    def thread_hook(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None:
            hook(given.exc_type, given.exc_value, given.exc_traceback)

    warnings.formatwarning = formatwarning
    sys.excepthook = hook
    threading.excepthook = thread_hook
