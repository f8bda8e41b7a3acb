"""Plants a fault in the processes of a bench: code that each of them runs before it does anything."""

import os
from pathlib import Path

import pytest

HEAD = """import sys
if "dynotune.bench.workers.worker" in sys.orig_argv:
    exec(compile({code!r}, "planted", "exec"))
"""

OUT_OF_MEMORY = """
import torch
from dynotune.execution.packed import PackedPath
loss = PackedPath.loss
def limited(path, batch):
    if len(batch.ids_T) > {tokens}:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    return loss(path, batch)
PackedPath.loss = limited
"""

LATE = """
import os
from dynotune.bench.workers.watch import Watch
seconds = Watch.seconds
if os.environ.get("RANK") == {rank!r}:
    Watch.seconds = property(lambda watch: seconds.fget(watch) + {seconds})
"""


def plant(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """folder: a new one, which Python looks into for its `sitecustomize`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HEAD.format(code=code))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
