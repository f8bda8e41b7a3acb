"""Where a script reads values from tensors, line by line: each read makes the host wait for the device.

Only while a step is traced: the functions of `Tensor` that read are replaced for that long.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

READS = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy", "cpu")

NOT_THE_SCRIPTS = ("site-packages", "dist-packages")

_TORCH = str(Path(torch.__file__).parent)
_OPTIMIZERS = str(Path(torch.__file__).parent / "optim")


class Reads:
    """Inside a `with`, every read is counted by the line that asked for it."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[str, str, bool]]()
        """By what was called, `train.py:41`, and whether that line is the script's own and no library's."""

        self._before: dict[str, Any] = {}
        self._inside = False

    def __enter__(self) -> "Reads":
        for name in READS:
            self._before[name] = torch.Tensor.__dict__.get(name)
            setattr(torch.Tensor, name, self._counting(name, getattr(torch.Tensor, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, before in self._before.items():
            if before is None:
                delattr(torch.Tensor, name)  # it was the C class's, which shows again
            else:
                setattr(torch.Tensor, name, before)

    def to_json(self) -> list[dict[str, Any]]:
        """The most frequent first."""
        return [
            {"what": what, "at": at, "own": own, "count": count}
            for (what, at, own), count in self.counts.most_common(20)
        ]

    def _counting(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            if self._inside or torch.compiler.is_compiling():
                return inner(*args, **kwargs)
            self._inside = True  # one read may be made of another
            try:
                place = _place(sys._getframe(1))
                if place is not None:
                    self.counts[name.strip("_"), *place] += 1
                return inner(*args, **kwargs)
            finally:
                self._inside = False

        return read


def _place(frame: FrameType | None) -> tuple[str, bool] | None:
    """The innermost line that is not PyTorch's, and whether it is the script's own. None for what optimizers read of
    themselves: their counts of steps lie on the host."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_TORCH):
            return f"{_short(path)}:{frame.f_lineno}", not any(part in path for part in NOT_THE_SCRIPTS)
        if path.startswith(_OPTIMIZERS):
            return None
        frame = frame.f_back
    return None


def _short(path: str) -> str:
    """Without the folders of this machine: below `site-packages`, or the file's name."""
    for part in NOT_THE_SCRIPTS:
        if part in path:
            return path.rpartition(part)[2].replace("\\", "/").lstrip("/")
    return Path(path).name
