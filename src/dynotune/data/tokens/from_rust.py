"""What `tokenizers` raises: its errors are bare `Exception`s, and where its Rust code panics, no `Exception` at all.

Neither can be caught by a class of its own, so nothing but its calls stands inside of `named_failures`.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class TokenizersError(ValueError):
    """An error of `tokenizers`, in its words."""


@contextmanager
def named_failures() -> Iterator[None]:
    """Raise `TokenizersError` for what `tokenizers` raises; everything else goes through."""
    try:
        yield
    except BaseException as error:  # only these two kinds are taken
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise TokenizersError(str(error) or type(error).__name__) from error
