"""What Dynotune raises at users.

Every class is a `ValueError`: the user gave something that cannot be carried out. The message names the thing, where it
stands (file, key, line) and what to do next. Invariants of our own are `assert`s, never these.
"""


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
