"""No secret is written, shown or sent, whatever its name and however deep it lies."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynotune.config.load import load_config
from dynotune.config.reading.flags import Words
from dynotune.config.secrets import masked, names_a_secret, without_secrets
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError

SECRETS: list[dict[str, Any]] = [
    {"env": {"MY_PAT": "S3CRET", "GH": "S3CRET", "DATABASE_URL": "postgres://u:S3CRET@h/db"}},
    {"model_init_kwargs": {"proxies": {"https": "http://u:S3CRET@proxy:8080"}}},
    {"model_init_kwargs": {"storage_options": {"secret": "S3CRET", "key": 1}}},
    {"model_init_kwargs": {"a": [{"access_token": "S3CRET"}], "authToken": "S3CRET"}},
    {"project": "https://me:S3CRET@example.org/x", "tokenizer_name_or_path": "https://me:S3CRET@example.org/t"},
    {"dataset_name": "https://example.org/x.jsonl?access_token=S3CRET&a=1"},
    {"dataset_name": "https://S3CRET@example.org/x.jsonl"},
    {"datasets": [{"path": "s3://id:S3/CRET@bucket/x.jsonl"}]},
    {"eval_dataset_name": {"a": "https://u:S3CRET@h/x"}, "eval_strategy": "epoch"},
    {"model_name_or_path": "hf_S3CRETS3CRETS3CRET"},
    {"hub_token": "S3CRET", "push_to_hub": True},
]


@pytest.mark.parametrize("values", SECRETS, ids=str)
def test_no_secret_is_written_or_sent(values: dict[str, Any]) -> None:
    config = SFTConfig(**values)
    texts = [config.to_yaml(), json.dumps(config.public_dict()), json.dumps(without_secrets(config.public_dict()))]
    texts += [json.dumps(without_secrets(values)), repr(config), str(config)]
    for text in texts:
        assert "CRET" not in text, text


def test_variables_are_named_and_nothing_else_is_lost() -> None:
    """A reader sees which variables and entries were given."""
    text = SFTConfig(
        env={"GH": "S3CRET", "HF_HOME": "/x"}, model_init_kwargs={"a": {"password": "S3CRET", "b": 2}}
    ).to_yaml()
    assert "env: {}" in text
    assert "GH, HF_HOME: (given; secrets are not written)" in text
    assert "a.password: (given" in text
    assert yaml.safe_load(text)["model_init_kwargs"] == {"a": {"b": 2}}


@pytest.mark.parametrize(
    "text",
    ["Qwen/Qwen2.5-0.5B", "https://host:8080/a/@user/x", "data/hf_dataset.jsonl", "s3://bucket/a.jsonl", "a@b", "sk-1"],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Negative control: names, addresses and ports are shown."""
    assert masked(text) == text


@pytest.mark.parametrize(
    "name", ["eos_token", "max_tokens", "image_token_id", "tokenizer", "num_key_value_heads", "key"]
)
def test_words_of_the_vocabulary_are_no_secrets(name: str) -> None:
    assert not names_a_secret(name)


@pytest.mark.parametrize(
    "name",
    ["token", "MY_PAT", "accessToken", "api-key", "WANDB_API_KEY", "hub_tokn_secret", "PASSWD", "hub_tokn", "api_keyy"],
)
def test_names_that_say_secret(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "flags",
    [
        {"hub_token": Words(["S3CRET", "B"])},
        {"env": Words(["HF_TOKEN", "S3CRET"])},
        {"env": Words(["HF_TOKEN"])},
        {"hub_tokn": Words(["S3CRET"])},
        {"hub_tokn": Words(["S3CRET", "more"])},
        {"hub_token": ["S3CRET"]},
        {"env": "HF_TOKEN=S3CRET"},
        {"env": ["HF_TOKEN=S3CRET"]},
        {"env": {"HF_TOKEN": ["S3CRET"]}},
        {"env": {"A": {"HF_TOKEN": "S3CRET"}}},
        {"env": {"HF_TOKEN=S3CRET": "x"}},
        {"env": "{HF_TOKEN: S3CRET"},
        {"model_init_kwargs": "token=S3CRET"},
        {"model_init_kwargs": "{token: S3CRET"},
        {"model_init_kwargs": {"token": "S3CRET", "device_map": "auto"}},
        {"datasets": [{"path": "x", "token": "S3CRET"}]},
        {"datasets": [{"path": {"token": "S3CRET"}}]},
        {"seed": "https://u:S3CRET@h"},
        {"fsdp_config": {"token": "S3CRET"}},
        {"aws_secret_access_key": "S3CRET"},
        {"base_model": "https://u:S3CRET@h"},
        {"warmup_ratio": "hf_S3CRETS3CRETS3CRET"},
        {"optim": "hf_S3CRETS3CRETS3CRET"},
    ],
    ids=str,
)
def test_no_error_shows_a_secret(flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, flags)
    assert "CRET" not in str(caught.value).replace("aws_secret_access_key", "")


def test_no_secret_in_errors_about_files(tmp_path: Path) -> None:
    """What stands in a file that cannot be read is not repeated."""
    path = tmp_path / "c.yaml"
    for text in (
        "env: {HF_TOKEN: 'S3CRET}",
        "? {a: S3CRET}\n",
        "env:\n  HF_TOKEN: S3CRET: x\n",
        "env: HF_TOKEN=S3CRET",
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_config(path, {})
        assert "CRET" not in str(caught.value)
