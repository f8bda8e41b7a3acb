"""What libraries raise over a model's files, and their words made fit for a message to the user."""

import logging
from types import TracebackType
from typing import Any

from dynotune.printable import printable

_LENGTH = 600
"""Characters of a library's message that are shown: some list every weight."""


def loading_failures() -> tuple[type[Exception], ...]:
    """Raised by transformers, PEFT, safetensors and the hub's client where files are broken or do not fit.

    Configurations are used unchecked in most places, so a value of the wrong type surfaces as whatever the first
    computation with it raises.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    return (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        AssertionError,
        SafetensorError,
        StrictDataclassError,
    )


def words_of(error: BaseException | str) -> str:
    """The library's message in one printable line."""
    line = " ".join(str(error).split())
    if not line or isinstance(error, KeyError):  # whose whole message is the key
        line = f"{type(error).__name__} {line}".strip()
    return printable(line, _LENGTH)


def cannot_load(name: str, arguments: dict[str, Any], error: BaseException, report: str) -> str:
    """Why a model that is there does not load, and what to do. `arguments` are the user's own for `from_pretrained`."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    shown, said = printable(name), words_of(error)
    if isinstance(error, SafetensorError):
        return (
            f"`{shown}`: its weights are not whole ({said}): an interrupted download. Download the model again, or copy it"
            " again from where it is whole."
        )
    if isinstance(error, StrictDataclassError):
        return f"`{shown}`: its `config.json` cannot be: {said}. Correct it, or download the model again."
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error) and arguments:
        return (
            f"`model_init_kwargs` ({', '.join(printable(str(key)) for key in sorted(arguments))}): `{shown}` does not know"
            f" one of these names: {said}. Correct it, or take it out."
        )
    details = f" The loader's report: {words_of(report)}" if report else ""
    return (
        f"`{shown}` cannot be loaded as a causal language model ({type(error).__name__}): {said}{details} Check that its"
        " `config.json` belongs to these weights and is whole."
    )


class LoadReport(logging.Filter):
    """Keeps transformers' table of weights that do not fit off the terminal while it loads a model.

    It prints names from the file as they are, and we raise an error that says the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def __enter__(self) -> None:
        logging.getLogger("transformers.modeling_utils").addFilter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("transformers.modeling_utils").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "LOAD REPORT" not in message:
            return True
        self.text = message
        return False
