"""Promise: what other projects' code raises is said in one line, and never hides what the device itself cannot do."""

import pytest
import torch

from dynotune.foreign import FOREIGN, UNLOADABLE, cannot_be_loaded, first_line, in_a_line


@pytest.mark.parametrize(
    ("message", "line"),
    [("", ""), ("\n \n", ""), ("\n  no library\nand much more", "no library"), ("one", "one")],
)
def test_the_first_line_that_says_something(message: str, line: str) -> None:
    assert first_line(message) == first_line(RuntimeError(message)) == line
    assert in_a_line(OSError(message)) == f"OSError: {line}"


def test_why_a_package_is_not_used_names_it_and_the_kind_of_error() -> None:
    said = cannot_be_loaded("flash_attn_3._C", ImportError("undefined symbol\nin a library"))
    assert said == "flash_attn_3._C cannot be loaded (ImportError: undefined symbol)"


def test_what_they_raise_covers_a_package_that_is_not_there_but_no_interruption() -> None:
    assert issubclass(ModuleNotFoundError, UNLOADABLE)
    assert set(UNLOADABLE) < set(FOREIGN)
    assert not any(issubclass(kind, FOREIGN) for kind in (KeyboardInterrupt, SystemExit, MemoryError, AssertionError))


def test_the_devices_own_failures_have_to_be_let_through_by_name() -> None:
    """Why each place that judges a package re-raises these two first."""
    assert issubclass(torch.OutOfMemoryError, FOREIGN)
    assert issubclass(torch.AcceleratorError, FOREIGN)
