"""The states of every random number generator that a rank draws from, as JSON, and back."""

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def random_states(devices: Sequence[torch.device]) -> str:
    """This rank's generators: Python's, numpy's, PyTorch's on the host and on each GPU of `devices`."""
    name, keys, *rest = np.random.get_state(legacy=True)  # the global generator is what libraries draw from
    return json.dumps(
        {
            "python": random.getstate(),
            "numpy": [name, np.asarray(keys).tolist(), *rest],
            "torch": _text(torch.get_rng_state()),
            "cuda": [_text(torch.cuda.get_rng_state(device)) for device in devices],
        }
    )


def restore_random_states(saved: str, devices: Sequence[torch.device]) -> tuple[list[str], list[str]]:
    """Set this rank's generators; returns the names of those that were restored, and why others were not.

    Raises `ValueError`, `KeyError`, `TypeError` or `RuntimeError` where `saved` is not what `random_states` wrote.
    """
    state: dict[str, Any] = json.loads(saved)
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    torch.set_rng_state(_tensor(state["torch"]))
    done = ["Python", "numpy", "PyTorch"]
    if len(state["cuda"]) != len(devices):
        return done, [f"GPU random states: {len(state['cuda'])} were saved, {len(devices)} are used now"]
    for device, text in zip(devices, state["cuda"], strict=True):
        torch.cuda.set_rng_state(_tensor(text), device)
    return done + ["GPU"] * bool(devices), []


def gpus_of(model: torch.nn.Module) -> list[torch.device]:
    """The GPUs that a model lies on: those whose generators its dropout draws from."""
    found = {p.device for p in model.parameters() if p.device.type == "cuda"}
    return sorted(found, key=lambda device: device.index or 0)


def _text(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)
