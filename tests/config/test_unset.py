"""Promise: what a file sets, a flag can unset; what a callback asks of `args`, it gets."""

from pathlib import Path

import pytest

from dynotune import ConfigError, SFTConfig, load_config
from dynotune.config.fates.names import OPTIMIZERS, SUPPORTED_OPTIMIZERS
from dynotune.config.reading.flags import Words


def test_null_unsets_a_text_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(
        "run_name: mine\nchat_template_path: a.jinja\nlora_target_modules: [q_proj]\nuse_peft: true"
    )
    config = load_config(
        tmp_path / "sft.yaml",
        {key: Words(["null"]) for key in ("run_name", "chat_template_path", "lora_target_modules")},
    )
    assert (config.run_name, config.chat_template_path, config.lora_target_modules) == (None, None, None)


def test_a_lora_file_runs_in_full_where_the_adapter_is_switched_off(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("lora_r: 8\n")
    with pytest.raises(ConfigError, match="use_peft: true"):
        load_config(tmp_path / "sft.yaml")
    config = load_config(str(tmp_path / "sft.yaml"), {"use_peft": Words(["false"])})
    assert any("lora_r" in notice for notice in config.notices)


def test_an_optimizer_that_is_not_there_is_refused_before_anything_is_loaded() -> None:
    from dynotune.config.fates.names import EIGHT_BIT_OPTIMIZERS as IN_8_BITS
    from dynotune.train.optimizer import OPTIMIZERS as BUILT

    assert {*BUILT, *IN_8_BITS} == set(SUPPORTED_OPTIMIZERS) < set(OPTIMIZERS)
    with pytest.raises(ConfigError, match=r"paged_adamw_8bit.*this version has adamw_torch_fused"):
        SFTConfig(optim="paged_adamw_8bit")


def test_transformers_own_callbacks_can_read_the_configuration(tmp_path: Path) -> None:
    config = SFTConfig(learning_rate=0.5, hub_token="hf_secret", push_to_hub=True)
    assert '"learning_rate": 0.5' in config.to_json_string()
    assert config.to_dict()["learning_rate"] == config.to_sanitized_dict()["learning_rate"] == 0.5
    assert "hf_secret" not in config.to_json_string() + str(config.to_sanitized_dict())


def test_the_precision_of_a_launcher_is_said(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("mixed_precision: bf16\n")
    assert any("mixed_precision" in notice for notice in load_config(tmp_path / "sft.yaml").notices)
