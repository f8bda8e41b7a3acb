"""Promise: a configuration that names FlashAttention needs its package only where transformers computes attention."""

import pytest
from transformers import utils

from dynotune.config.sft import SFTConfig
from dynotune.model.flash_packages import loadable


def config(**more: str) -> SFTConfig:
    return SFTConfig(model_name_or_path="x", dataset_name="y", **more)


@pytest.fixture(params=[2, 3])
def number(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(utils, f"is_flash_attn_{request.param}_available", lambda: False)
    return int(request.param)


def test_without_its_package_the_model_is_loaded_with_its_own(number: int) -> None:
    asked = config(attn_implementation=f"flash_attention_{number}")
    loaded, says = loadable(asked)
    assert loaded.attn_implementation is None
    assert f"flash_attention_{number}" in says[0]
    assert asked.attn_implementation == f"flash_attention_{number}"
    assert loaded == asked.model_copy(update={"attn_implementation": None})


def test_with_it_or_on_the_plain_path_nothing_changes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = config(attn_implementation=f"flash_attention_{number}", packed_execution="off")
    assert loadable(plain) == (plain, [])
    monkeypatch.setattr(utils, f"is_flash_attn_{number}_available", lambda: True)
    asked = config(attn_implementation=f"flash_attention_{number}")
    assert loadable(asked) == (asked, [])


@pytest.mark.parametrize("name", ["sdpa", "eager", "flex_attention", None])
def test_other_names_stay(name: str | None) -> None:
    asked = config(attn_implementation=name) if name else config()
    assert loadable(asked) == (asked, [])


def test_transformers_still_answers_the_question() -> None:
    assert callable(utils.is_flash_attn_2_available)
    assert callable(utils.is_flash_attn_3_available)
