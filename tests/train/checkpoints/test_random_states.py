"""Promise: every generator that a step draws from goes on where it was, on a GPU too; what could not be restored is said."""

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynotune.train.checkpoints.random_states import random_states, restore_random_states
from dynotune.train.faults.draws import Draws

DRAWS: dict[str, Callable[[], float]] = {
    "python": random.random,
    "python, of a pair": lambda: random.gauss(0, 1),
    "numpy": np.random.random,
    "torch": lambda: float(torch.rand(())),
}


def there_and_back(how: str) -> Callable[[], object]:
    """What goes back to this moment."""
    if how == "a step taken again":
        return Draws.now(torch.device("cpu")).restore
    saved = random_states([])
    return lambda: restore_random_states(saved, [])


@pytest.mark.parametrize("how", ["a step taken again", "a checkpoint"])
@pytest.mark.parametrize("generator", list(DRAWS))
def test_the_same_numbers_are_drawn_again(generator: str, how: str) -> None:
    draw = DRAWS[generator]
    draw()
    back = there_and_back(how)
    first = [draw() for _ in range(5)]
    assert [draw() for _ in range(5)] != first
    back()
    assert [draw() for _ in range(5)] == first


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[torch.device, Tensor]:
    """States of two GPUs' generators, without the GPUs."""
    states = {torch.device("cuda", i): torch.full((16,), i, dtype=torch.uint8) for i in range(2)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device, state.clone()))
    return states


def test_each_gpus_state_goes_back_to_its_gpu(gpus: dict[torch.device, Tensor]) -> None:
    then = {device: state.clone() for device, state in gpus.items()}
    saved = random_states(list(gpus))
    for state in gpus.values():
        state += 7
    assert restore_random_states(saved, list(gpus)) == (["Python", "numpy", "PyTorch", "GPU"], [])
    assert all(torch.equal(gpus[device], then[device]) for device in gpus)


def test_another_number_of_gpus_is_said_and_none_gets_anothers(gpus: dict[torch.device, Tensor]) -> None:
    saved = random_states(list(gpus)[:1])
    gpus[torch.device("cuda", 0)] += 7
    done, missing = restore_random_states(saved, list(gpus))
    assert "GPU" not in done
    assert missing == ["GPU random states: 1 were saved, 2 are used now"]
    assert int(gpus[torch.device("cuda", 0)][0]) == 7


def test_a_step_taken_again_draws_from_its_gpu_as_before(gpus: dict[torch.device, Tensor]) -> None:
    device = torch.device("cuda", 1)
    before = Draws.now(device)
    gpus[device] += 7
    assert Draws.now(device).moved_since(before)
    before.restore()
    assert int(gpus[device][0]) == 1
    assert int(gpus[torch.device("cuda", 0)][0]) == 0
    assert not Draws.now(device).moved_since(before)


@pytest.mark.parametrize("broken", [{}, {"python": 1}, {"cuda": ["!"]}])
def test_what_is_no_state_is_refused(broken: dict[str, Any]) -> None:
    saved = json.loads(random_states([]))
    text = json.dumps({**saved, **broken} if broken else {})
    with pytest.raises((ValueError, KeyError, TypeError, RuntimeError)):
        restore_random_states(text, [torch.device("cuda", 0)] * len(broken.get("cuda", ())))
