"""Promise: what other projects' code raises is said in one line, and never hides what the device itself cannot do."""

import pytest
import torch

from dynotune.foreign import FOREIGN, UNLOADABLE, cannot_be_loaded, first_line, in_a_line, may_pass


@pytest.mark.parametrize(
    ("message", "line"),
    [("", ""), ("\n \n", ""), ("\n  no library\nand much more", "no library"), ("one", "one")],
)
def test_the_first_line_that_says_something(message: str, line: str) -> None:
    assert first_line(message) == first_line(RuntimeError(message)) == line
    assert in_a_line(OSError(message)) == f"OSError: {line}"


def wrapped(cause: BaseException) -> BaseException:
    try:
        raise RuntimeError("the compiler failed") from cause
    except RuntimeError as error:
        return error


def beside(first: Exception) -> BaseException:
    """Raised while another one was handled, without saying so."""
    try:
        try:
            raise first
        except type(first):
            raise RuntimeError("the compiler failed")  # noqa: B904
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "failure",
    [
        "the process was ended by signal 9",
        "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
        "CUDA-capable device(s) is/are busy or unavailable",
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("first line\nTriton Error [CUDA]: an illegal memory access was encountered"),
        OSError(28, "No space left on device"),
        FileNotFoundError(2, "No such file or directory", "gcc"),
        ConnectionResetError(104, "Connection reset by peer"),
        MemoryError(),
        wrapped(OSError(28, "No space left on device")),
        wrapped(torch.OutOfMemoryError("Triton")),
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable."),
        RuntimeError("[Errno 28] No space left on device"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        OSError("We couldn't connect to the hub to load the files"),
        beside(MemoryError()),
    ],
)
def test_what_says_more_of_the_moment_than_of_a_package_may_pass(failure: BaseException | str) -> None:
    assert may_pass(failure)


@pytest.mark.parametrize(
    "failure",
    [
        "no answer within 180 s",
        "the process was ended by signal 11",
        "AcceleratorError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        OSError("libcudart.so.12: cannot open shared object file: No such file or directory"),
        ImportError("undefined symbol: _ZN3c105ErrorC2E"),
        TypeError("forward() got an unexpected keyword argument"),
        wrapped(AttributeError("module 'quack' has no attribute 'gemm'")),
    ],
)
def test_what_depends_on_versions_does_not(failure: BaseException | str) -> None:
    assert not may_pass(failure)


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
