"""Triton's interpreter, which the environment has chosen (TRITON_INTERPRET=1), as Liger's kernels need it.

Three things that a GPU's compiler gives Liger's kernels the interpreter of Triton 3.6 does not: arguments that are floats as
float32 values, and two functions of the device's library. They are put in its place here; the arithmetic is Liger's.
"""

from typing import Any

import numpy as np
import triton
import triton.language as tl
from liger_kernel.ops import cross_entropy, geglu, rms_norm
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

_implicit = interpreter._implicit_cvt


def _with_floats(argument: Any) -> Any:
    if isinstance(argument, float):
        return tl.core.tensor(TensorHandle(np.array([argument], dtype=np.float32), tl.float32), tl.float32)
    return _implicit(argument)


@triton.jit
def _rsqrt(x):  # type: ignore[no-untyped-def]
    return tl.rsqrt(x)


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 * tl.sigmoid(2 * x) - 1


def complete() -> None:
    """Once a process."""
    interpreter._implicit_cvt = _with_floats
    rms_norm.rsqrt, geglu.tanh, cross_entropy.tanh = _rsqrt, _tanh, _tanh
