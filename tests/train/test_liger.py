"""Promise: what `use_liger_kernel` asks for is seen to run, in full fine-tuning and with LoRA, or the run stops.

With functions of torch in the places of Liger's: what is seen is the registry, the installation and the proof.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.errors import ConfigError, TrainingError
from dynotune.speedups import packages
from dynotune.speedups.contract import No
from dynotune.speedups.registry import speedups
from tests.model.liger import stand_ins
from tests.tiny import chats, tiny_model

LAYERS = ("liger_rms_norm", "liger_rope", "liger_swiglu")
OURS = ("rms_norm_kernel", "rotary_kernel", "gated_activation_kernel")
HEAD = {"liger_kernel_config": {"fused_linear_cross_entropy": True}}
LORA = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "lora_dropout": 0.0}


@pytest.fixture(autouse=True)
def liger() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        stand_ins.put_in(patch)
        yield
        stand_ins.take_out()


def go(run_tiny: Any, tmp_path: Path, **settings: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Observations of a run of three steps, by name, and its metrics."""
    run_tiny(
        **{
            "rows": chats(8), "max_steps": 3, "overwrite_output_dir": True, "use_liger_kernel": True,
            "micro_batch_tokens": 128, **settings,
        }
    )  # fmt: skip
    run = tmp_path / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return json.loads((run / "engagement.json").read_text())["observations"], [row for row in rows if "loss" in row]


@pytest.mark.parametrize("adapter", [{}, LORA], ids=["full", "lora"])
def test_each_is_seen_in_every_place_and_learns_the_same(adapter: Any, run_tiny: Any, tmp_path: Path) -> None:
    off = dict.fromkeys((*OURS, *LAYERS, "labelled_rows_head", "liger_cross_entropy"), "off")
    _, right = go(run_tiny, tmp_path, use_liger_kernel=False, speedups=off, **adapter)
    found, rows = go(run_tiny, tmp_path, **HEAD, **adapter)
    for name, places in zip(LAYERS, (5, 2, 2), strict=True):
        assert found[name]["verdict"] == "engaged", (name, found[name])
        assert (found[name]["seen"], found[name]["of"]) == (places, places)
    assert found["liger_cross_entropy"]["verdict"] == "engaged"
    assert not {"labelled_rows_head", *OURS} & found.keys()
    for a, b in zip(rows, right, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["mean_token_accuracy"] == pytest.approx(b["mean_token_accuracy"])
        assert math.isnan(a["entropy"])  # Liger does not form it


def test_ours_come_first_where_nobody_asks(run_tiny: Any, tmp_path: Path) -> None:
    found, _ = go(run_tiny, tmp_path, use_liger_kernel=False)
    assert set(OURS) <= found.keys()
    assert not {*LAYERS, "liger_cross_entropy"} & found.keys()


def test_what_was_not_seen_to_run_gives_its_place_to_the_next_which_is_proved_too(
    run_tiny: Any, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_ins.put_in(patch, ours_are_seen=False)
        found, _ = go(run_tiny, tmp_path, use_liger_kernel=False, max_steps=4)
    assert {found[name]["verdict"] for name in OURS} == {"not engaged"}
    assert {found[name]["verdict"] for name in LAYERS} == {"engaged"}


def test_the_loss_is_ours_unless_it_is_named_as_in_trl(run_tiny: Any, tmp_path: Path) -> None:
    found, _ = go(run_tiny, tmp_path, liger_kernel_config={"rope": False})
    assert {"liger_rms_norm", "liger_swiglu", "rotary_kernel", "labelled_rows_head"} <= found.keys()
    assert not {"liger_rope", "liger_cross_entropy"} & found.keys()


def test_recomputed_layers(run_tiny: Any, tmp_path: Path) -> None:
    found, _ = go(run_tiny, tmp_path, gradient_checkpointing=True)
    assert {found[name]["verdict"] for name in LAYERS} == {"engaged"}


@pytest.mark.parametrize("name", [*LAYERS, "liger_cross_entropy"])
def test_one_that_is_off_is_not_proved(
    name: str, run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: it is installed as far as anybody says, and the modules' own operations answer."""
    speedup = speedups()[name]
    held = speedup.install

    def says_so_only(site: Any) -> Any:
        there = held(site)
        there.uninstall()
        return there

    monkeypatch.setattr(speedup, "install", says_so_only)
    with pytest.raises(TrainingError, match=f"{name} was not engaged"):
        go(run_tiny, tmp_path, **HEAD)


def test_tables_whose_halves_differ_keep_their_own(run_tiny: Any, tmp_path: Path) -> None:
    model: Any = tiny_model()
    real = model.model.rotary_emb.forward

    def uneven(*args: Any, **kwargs: Any) -> Any:
        cos, sin = real(*args, **kwargs)
        return torch.cat([cos[..., :-1], 0.99 * cos[..., -1:]], -1), sin

    model.model.rotary_emb.forward = uneven
    with pytest.raises(ConfigError, match="liger_rope cannot run: the two halves of its tables differ"):
        go(run_tiny, tmp_path, model=model)
    found, _ = go(run_tiny, tmp_path, model=model, speedups={"liger_rope": "auto"})
    assert "rotary_kernel" in found  # the next one of its slot


def test_a_model_without_a_gate_says_so_and_goes_on(run_tiny: Any, tmp_path: Path) -> None:
    """As TRL does where Liger has nothing for an architecture, but not silently."""
    kind = "starcoder2"  # LayerNorm, and an activation without a gate
    found, _ = go(run_tiny, tmp_path, model=tiny_model(kind))
    assert found["liger_rope"]["verdict"] == "engaged"
    assert not {"liger_swiglu", "liger_rms_norm"} & found.keys()
    with pytest.raises(ConfigError, match="liger_swiglu cannot run: the model has no gated activation"):
        go(run_tiny, tmp_path, model=tiny_model(kind), speedups={"liger_swiglu": "on"})


def test_without_liger_the_run_stops_with_the_remedy(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "missing", lambda name: No(f"{name} is not installed", "run `pip install ...`", True))
    with pytest.raises(ConfigError, match=r"use_liger_kernel: true.*liger-kernel is not installed.*pip install"):
        go(run_tiny, tmp_path)
    found, _ = go(run_tiny, tmp_path, use_liger_kernel=False)
    assert set(OURS) <= found.keys()
