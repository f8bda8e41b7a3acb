"""Promise: of a large model the gate takes the first layers, one of each kind, loaded as any model is."""

from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from dynotune.bench.parity.asking import in_this_process
from dynotune.bench.parity.cut import cut, kept_names, layers_to_keep
from dynotune.bench.parity.exact import exact
from dynotune.bench.parity.question import Question
from tests.bench.parity.arms import sft
from tests.tiny import tiny_model


@pytest.mark.parametrize("random", [False, True], ids=["stored", "random weights"])
def test_a_large_model_is_cut_and_trains_by_all_paths(random: bool, tmp_path: Path) -> None:
    said: list[str] = []
    arm = sft(tmp_path, "a", random_weights=random)
    tiny_model(num_hidden_layers=5).save_pretrained(tmp_path / "model")
    config = cut(arm.config, tmp_path / "cut", said.append, large=1)
    assert "the first 2 of 5 layers" in said[0]
    arms = [type(arm)("a", config), type(arm)("b", config.replace(packed_execution="off"))]
    one, two = (in_this_process(each, [Question("q")], tmp_path / "p")[0] for each in arms)
    assert not [check for check in exact(one, two) if not check.ok]
    layers = {name.split(".")[2] for name in one.each("gradient") if ".layers." in name}
    assert layers == {"0", "1"}
    if not random:
        with (
            safe_open(tmp_path / "model" / "model.safetensors", "pt") as file,
            safe_open(tmp_path / "cut" / "model.safetensors", "pt") as few,
        ):
            name = "model.layers.1.mlp.up_proj.weight"
            assert few.get_tensor(name).equal(file.get_tensor(name))
            assert "model.layers.2.mlp.up_proj.weight" not in few.keys()  # noqa: SIM118


def test_a_small_model_stays_whole(tmp_path: Path) -> None:
    config = sft(tmp_path, "a").config
    assert cut(config, tmp_path / "cut", lambda line: None) is config
    assert not (tmp_path / "cut").exists()


def test_what_cannot_be_cut_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    config: Any = sft(tmp_path, "a", model_init_kwargs={"use_cache": False}).config
    assert cut(config, tmp_path / "cut", said.append, large=1) is config
    assert "whole model" in said[0]


def test_layers_of_each_kind_are_kept() -> None:
    assert layers_to_keep(["full"] * 30) == 2
    assert layers_to_keep((["sliding"] * 5 + ["full"]) * 4) == 6
    assert layers_to_keep(["sliding"] * 20 + ["full"]) == 2
    assert layers_to_keep([]) == 2


def test_a_tower_of_another_depth_is_kept() -> None:
    names = [f"vision.layers.{i}.w" for i in range(3)] + [
        f"model.layers.{i}.experts.{e}.w" for i in range(4) for e in (0, 1)
    ]
    kept = kept_names([*names, "lm_head.weight"], 4, 2)
    assert kept == [*names[:3], *names[3:7], "lm_head.weight"]
