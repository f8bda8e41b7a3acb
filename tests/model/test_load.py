"""Promise: a model's folder that is broken or does not fit is named with its remedy, in characters that may be printed."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dynotune.config.keys.data import DataConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.load import load_model
from dynotune.model.precision import Precision
from dynotune.model.tokenizer import load_tokenizer
from tests.tiny import tiny_model


def load(folder: Path, **settings: Any) -> Any:
    config = ModelConfig(model_name_or_path=str(folder), **settings)
    return load_model(config, Precision(torch.float32, False), torch.device("cpu"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, said: str, capfd: pytest.CaptureFixture[str], **settings: Any) -> None:
    capfd.readouterr()
    with pytest.raises(ModelError, match=said) as caught:
        load(folder, **settings)
    assert str(caught.value).isprintable()
    shown = capfd.readouterr()
    assert "LOAD REPORT" not in shown.err + shown.out
    assert "\x1b" not in shown.err + shown.out


@pytest.mark.parametrize(
    "tear",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"",
        lambda b: b[:7],
        lambda b: struct.pack("<Q", 2**62) + b[8:],
        lambda b: b"\0" * 1000,
    ],
)
def test_torn_weights_are_called_an_interrupted_download(
    model: Path, tear: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    file = model / "model.safetensors"
    file.write_bytes(tear(file.read_bytes()))
    refused(model, "not whole .*interrupted download.* again", capfd)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"vocab_size": 100},
            r"2 weights do not have the shape.*\[352, 32\] in the file and \[100, 32\].*`vocab_size`",
        ),
        ({"hidden_size": 64}, r"weights do not have the shape"),
        ({"num_hidden_layers": 3}, r"lacks 9 weights"),
        ({"num_attention_heads": 7}, r"`config\.json` cannot be"),
        ({"hidden_size": "64"}, r"`config\.json` cannot be.*hidden_size"),
        ({"hidden_size": -1}, r"`config\.json`"),
        ({"model_type": [1]}, r"config\.json|causal"),
        ({"model_type": "\x1b]0;pwn\x07"}, r"\\x1b\]0;pwn"),
        ({"hidden_act": "__import__"}, r"KeyError.*__import__"),
        ({"rope_parameters": {"rope_type": "nope"}}, r"cannot be.*nope|KeyError.*nope"),
    ],
)
def test_settings_that_cannot_be_are_named(
    model: Path, settings: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(content | settings))
    refused(model, said, capfd)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"", b'{"a":' + b"[" * 100_000 + b"}"])
def test_a_configuration_that_is_no_json_is_named(
    model: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    (model / "config.json").write_bytes(content)
    refused(model, r"config\.json is not (JSON|a JSON object)", capfd)


@pytest.mark.parametrize("why", ["lacks", "holds"])
def test_names_of_weights_are_never_printed_as_they_are(
    model: Path, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = load_file(model / "model.safetensors")
    if why == "lacks":
        weights.pop("model.norm.weight")
    weights["\x1b]0;pwn\x07\x1b[2J"] = torch.zeros(2)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    refused(model, r"model\.norm" if why == "lacks" else r"\\x1b\]0;pwn", capfd)


@pytest.mark.parametrize("name", ["use_auth_token", "nonsense"])
def test_an_argument_that_the_model_does_not_know_is_named(
    model: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(model, rf"`model_init_kwargs` \({name}\).*{name}", capfd, model_init_kwargs={name: True})


def test_safetensors_are_a_choice_that_cannot_be_changed(model: Path) -> None:
    load(model, model_init_kwargs={"use_safetensors": True})
    for key, value in (("use_safetensors", False), ("ignore_mismatched_sizes", True)):
        with pytest.raises(ConfigError, match=f"`model_init_kwargs: {{{key}: ...}}` cannot be changed"):
            load(model, model_init_kwargs={key: value})


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "\0", "\x1b[31m", "http://[", "~nobody/x"])
def test_a_name_that_no_folder_can_have_is_named(name: str) -> None:
    for what in (lambda c: load_model(c, Precision(torch.float32, False), torch.device("cpu")), load_tokenizer_of):
        with pytest.raises(ModelError) as caught:
            what(ModelConfig(model_name_or_path=name))
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000


def load_tokenizer_of(config: ModelConfig) -> Any:
    return load_tokenizer(config, DataConfig())


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_configuration_with_random_weights_is_a_folder_or_its_file(tmp_path: Path, name: str) -> None:
    tiny_model().config.save_pretrained(tmp_path)
    config = ModelConfig(model_name_or_path=str(tmp_path / name), random_weights=True)
    drawn = load_model(config, Precision(torch.float32, compute_bf16=False), torch.device("cpu"))
    assert sum(p.numel() for p in drawn.parameters()) == sum(p.numel() for p in tiny_model().parameters())
