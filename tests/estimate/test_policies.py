"""Promise: `dynotune plan` chooses what is done about activations from the policies that training would choose from; where
memory is short it says which are left out, and why."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune import SFTConfig
from dynotune.estimate.command import plan_run, policies_left_out
from dynotune.estimate.memory import step_memory
from dynotune.train.start.memory_choice import _left_out
from tests.estimate.test_lora_in_activation import GPU, config_of, folder, trained  # noqa: F401  (fixtures)
from tests.tiny import chats

SHORT, TOO_LITTLE = 0.503, 0.501
"""GiB of a GPU: half a one is its context's, and with all activations kept the longest document takes 2.6 MB, or less."""

COMPILED = {"compiled_layers": "on"}
ALL_OFF = {f"activation_{policy}": "off" for policy in ("selective", "full", "offload")}


@pytest.mark.parametrize(
    ("keys", "out"),
    [
        ({}, ()),
        ({"speedups": {"activation_selective": "off"}}, ("selective",)),
        ({"speedups": {"activation_full": "off"}}, ("full",)),
        ({"speedups": ALL_OFF}, ("selective", "full")),
        ({"speedups": {"lora_in_activation": "on"}}, ("selective",)),
        ({"lora_dropout": 0.1}, ("selective",)),
        ({"speedups": COMPILED}, ("selective",)),
        ({"speedups": COMPILED, "lora_dropout": 0.1}, ("selective", "full")),
        ({"speedups": COMPILED, "activation_memory_budget": 0.5}, ("selective", "full")),
    ],
    ids=str,
)
def test_a_plan_has_the_choice_that_training_has(
    folder: Path,  # noqa: F811
    trained: Any,  # noqa: F811
    keys: dict[str, Any],
    out: tuple[str, ...],
) -> None:
    config = config_of(folder, **keys)
    _, installed = trained(config)
    in_training = _left_out(installed)
    planned = policies_left_out(config, step_memory(config, GPU))
    assert ("offload" in planned) is ("full" in out and keys["speedups"] != {"activation_full": "off"})
    for found in (in_training, planned):
        found.pop("offload", None)  # training is played on the CPU here, where it has no use
    assert planned == in_training
    assert planned.keys() == set(out)


def planned_on(folder: Path, gib: float, **keys: Any) -> tuple[dict[str, Any], str]:  # noqa: F811
    """For a GPU of so much memory: what was found, and what was said."""
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(30)))
    console = Console(record=True, width=400, file=io.StringIO())
    config: SFTConfig = config_of(folder, dataset_name=str(folder / "data.jsonl"), token_cache="off", **keys)
    return plan_run(config, console, memory_gib=gib), console.export_text()


OF_LAYERS = {"activation_full": "off", "activation_offload": "off"}


@pytest.mark.parametrize(
    ("speedups", "policies"),
    [
        ({}, ("full",)),
        ({"activation_full": "off"}, ("selective", "offload")),
        (OF_LAYERS, ("selective",)),
        (ALL_OFF, ("none",)),
    ],
    ids=str,
)
def test_what_is_off_is_not_planned(folder: Path, speedups: dict[str, str], policies: tuple[str, ...]) -> None:  # noqa: F811
    """The first is the control: short of memory, computing layers again is what a plan takes by itself."""
    found, said = planned_on(folder, SHORT, speedups=speedups)
    assert found["memory"]["policy"] in policies
    assert not {one["policy"] for one in found["memory"]["choices"]} & {
        name.removeprefix("activation_") for name in speedups
    }
    assert "the fastest that the memory is estimated to take" in found["execution"]
    assert "is left out" not in said, "nobody is surprised"


def test_what_surprises_is_said_where_memory_is_short(folder: Path) -> None:  # noqa: F811
    said = "activation memory: selective is left out: it cannot be beside lora_in_activation"
    for gib, short in ((80.0, False), (SHORT, True)):
        assert (said in planned_on(folder, gib, speedups={"lora_in_activation": "on"})[1]) is short


@pytest.mark.parametrize(
    ("keys", "under", "lines"),
    [
        ({}, "under any policy of activations: if it fails, set a smaller `max_length`", 0),
        ({"speedups": OF_LAYERS}, "under any policy of activations that is left: if it fails, set a smaller", 2),
        ({"speedups": ALL_OFF}, "under any policy of activations that is left: if it fails, set a smaller", 3),
        (
            {"gradient_checkpointing": False},
            "with `gradient_checkpointing: false`: if it fails, take that out, or set a smaller `max_length`",
            0,
        ),
    ],
    ids=str,
)
def test_where_nothing_fits_all_that_is_left_out_is_said(
    folder: Path,  # noqa: F811
    keys: dict[str, Any],
    under: str,
    lines: int,
) -> None:
    found, said = planned_on(folder, TOO_LITTLE, **keys)
    assert under in found["execution"]
    told = [line.strip() for line in said.splitlines() if line.startswith("activation memory: ")]
    off = list(keys.get("speedups", {}))
    assert told == [
        f"activation memory: {name.removeprefix('activation_')} is left out: `speedups: {{{name}: off}}` says so"
        for name in off
    ]
    assert len(told) == lines
