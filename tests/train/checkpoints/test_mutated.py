"""Promise: a checkpoint that was edited, manifest and all, is a clear error or trains; it is never a traceback of ours."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.config.keys.saving import SavingConfig
from dynotune.config.sft import SFTConfig
from dynotune.errors import DynotuneError, TrainingError
from dynotune.parallel.ranks import Ranks
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.random_states import random_states
from dynotune.train.checkpoints.restore import checked_progress
from dynotune.train.optimizer import build_optimizer, build_schedule
from dynotune.train.state import Progress, Trainee
from tests.tiny import tiny_model, tiny_tokenizer
from tests.train.checkpoints.sealing import reseal

ODD: list[Any] = [None, True, -1, 0, 10**30, 1.5, float("nan"), "", "x", [], [1], {}, {"a": 1}, [[[]]]]


def trainee() -> Trainee:
    config = SFTConfig(max_steps=10)
    model = tiny_model()
    optimizer = build_optimizer(model, config)
    plan = {"steps": 10, "examples_per_step": 2}
    return Trainee(
        model, tiny_tokenizer(), optimizer, build_schedule(optimizer, config, 10), Progress(), plan, {"seed": 1}
    )


def take_a_step(one: Trainee) -> None:
    for p in one.model.parameters():
        p.grad = torch.ones_like(p)
    one.optimizer.step()
    one.schedule.step()
    one.progress.step += 1


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Checkpoints, Path]:
    one = trainee()
    take_a_step(one)
    keeper = Checkpoints(tmp_path, SavingConfig())
    return keeper, keeper.save(one)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


@pytest.mark.parametrize("name", ["state.json", "random.json"])
def test_edited_values_are_named_or_harmless(saved: tuple[Checkpoints, Path], name: str) -> None:
    keeper, path = saved
    whole = json.loads((path / name).read_text())
    chance, said = random.Random(name), list[str]()
    everywhere = [(place, odd) for place in places(whole) for odd in ODD]
    fresh = trainee()
    for place, odd in chance.sample(everywhere, 120):
        changed = json.loads(json.dumps(whole))
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = odd
        (path / name).write_text(json.dumps(changed))
        reseal(path)
        keeper._checked.clear()
        try:
            keeper.restore(path, fresh)
            take_a_step(fresh)
        except DynotuneError as error:
            said.append(str(error))
            fresh = trainee()
    assert len(said) > 35
    assert not [text for text in said if str(path) not in text]


def test_random_states_of_several_ranks(tmp_path: Path) -> None:
    """Each rank gets its own again; with another number of ranks, what is not restored is said."""
    states, draws = [], []
    for rank in range(2):
        torch.manual_seed(100 + rank)
        states.append(random_states([]))
        draws.append(float(torch.rand(())))
    one = trainee()
    take_a_step(one)
    keeper = Checkpoints(tmp_path, SavingConfig(), ranks=Ranks(0, 2), gather=lambda mine: states)
    path = keeper.save(one)
    for rank, world in ((0, 2), (1, 2), (0, 1), (1, 3)):
        torch.manual_seed(0)
        lines = Checkpoints(tmp_path, SavingConfig(), ranks=Ranks(rank, world)).restore(path, trainee()).lines()
        assert float(torch.rand(())) == draws[rank]
        assert ("random states as they were (2 ranks then" in "".join(lines)) == (world != 2)
    newcomer = trainee()
    torch.manual_seed(0)
    here = float(torch.rand(()))
    torch.manual_seed(0)
    Checkpoints(tmp_path, SavingConfig(), ranks=Ranks(2, 3)).restore(path, newcomer)
    assert float(torch.rand(())) == here  # a rank that was not there keeps its own


def test_counters_of_another_kind_are_refused() -> None:
    assert checked_progress({"step": 3, "train_seconds": 1}).step == 3
    for wrong in ({"step": "3"}, {"step": True}, {"best_step": 1.5}, {"skipped_steps": ["a"]}, {"totals": None}):
        with pytest.raises(TypeError):
            checked_progress(wrong)


def test_a_plan_that_lacks_its_batch_is_refused(saved: tuple[Checkpoints, Path]) -> None:
    keeper, path = saved
    state = json.loads((path / "state.json").read_text())
    state["plan"]["examples_per_step"] = 0
    (path / "state.json").write_text(json.dumps(state))
    reseal(path)
    keeper._checked.clear()
    with pytest.raises(TrainingError, match=r"lacks plan\.examples_per_step"):
        keeper.restore(path, trainee())
