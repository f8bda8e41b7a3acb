"""Promise: an adapter is merged with every weight of it or not at all, and what is broken is named with its remedy."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dynotune.errors import ModelError
from dynotune.merge.merge import merge_adapter
from tests.merge.test_merge import save_adapter, save_base
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    save_adapter(save_base(folder / "base"), folder / "adapter", modules_to_save=["lm_head"])
    return folder


@pytest.fixture
def adapter(made: Path, tmp_path: Path) -> Path:
    (tmp_path / "adapter").mkdir()
    for file in (made / "adapter").iterdir():
        (tmp_path / "adapter" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "adapter"


def change_weights(adapter: Path, change: Any) -> None:
    weights = load_file(adapter / "adapter_model.safetensors")
    change(weights)
    save_file(weights, adapter / "adapter_model.safetensors", metadata={"format": "pt"})


def change_settings(adapter: Path, **changes: Any) -> None:
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | changes))


def refused(adapter: Path, said: str, **how: Any) -> str:
    """The message of the refusal; nothing is left behind."""
    output = adapter.parent / "out"
    with pytest.raises(ModelError, match=said) as caught:
        merge_adapter(adapter, **{"output": output} | how)
    assert not output.exists()
    assert re.sub(r"\n", "", str(caught.value)).isprintable()
    return str(caught.value)


def test_the_whole_adapter_merges(adapter: Path, tmp_path: Path) -> None:
    assert merge_adapter(adapter, tmp_path / "out").layers == 6


@pytest.mark.parametrize("part", ["lora_A", "lora_B", "layers.0", "lm_head", ""])
def test_a_weight_that_the_file_lacks_is_an_error(adapter: Path, part: str) -> None:
    change_weights(adapter, lambda w: [w.pop(name) for name in list(w) if part in name])
    message = refused(adapter, "lacks|does not load")
    assert part in message


def test_a_weight_without_a_place_is_an_error(adapter: Path) -> None:
    name = "base_model.model.model.layers.77.self_attn.q_proj.lora_A.\x1b[31m.weight"
    change_weights(adapter, lambda w: w.update({name: torch.zeros(4, 32)}))
    refused(adapter, r"holds 1 weights that the base has no place for.*layers\.77.*another base")


def test_an_adapter_of_a_deeper_base_is_an_error(adapter: Path, tmp_path: Path) -> None:
    tiny_model(num_hidden_layers=1).save_pretrained(tmp_path / "flat")
    refused(adapter, "no place for", base=str(tmp_path / "flat"))
    tiny_model(num_hidden_layers=3).save_pretrained(tmp_path / "deep")
    refused(adapter, "lacks 6 weights", base=str(tmp_path / "deep"))


@pytest.mark.parametrize("length", [0, 5, 300, -100])
def test_a_torn_adapter_is_called_an_interrupted_copy(adapter: Path, length: int) -> None:
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    refused(adapter, "not whole .*interrupted")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b'"x"', b'{"a":' + b"[" * 100_000])
def test_broken_settings_are_named(adapter: Path, content: bytes) -> None:
    (adapter / "adapter_config.json").write_bytes(content)
    refused(adapter, r"adapter_config\.json (cannot be read as JSON|is not a JSON object)")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base_model_name_or_path": 5}, "`base_model_name_or_path` is not a text"),
        ({"base_model_name_or_path": ["x"]}, "`base_model_name_or_path` is not a text"),
        ({"revision": 5}, "`revision` is not a text"),
        ({"base_model_name_or_path": None}, "names no base model.*--base"),
        ({"base_model_name_or_path": "\x1b]0;pwn\x07/x"}, r"\\x1b\]0;pwn"),
        ({"lora_alpha": "x"}, "does not load"),
        ({"lora_alpha": 1e38}, r"is broken.*lora_alpha|not be finite|does not merge"),
        ({"r": 0}, "does not load.*`r`"),
        ({"peft_type": "NOPE"}, "does not load.*NOPE"),
        ({"target_modules": "(a+)+$"}, "does not load.*target"),
    ],
)
def test_settings_that_cannot_be_are_named(adapter: Path, settings: dict[str, Any], said: str) -> None:
    change_settings(adapter, **settings)
    refused(adapter, said)


@pytest.mark.parametrize("device", ["foo", "meta", "cuda:99", "\x1b[31m"])
def test_a_device_that_is_not_there_is_named(adapter: Path, device: str) -> None:
    refused(adapter, "--device", device=device)


@pytest.mark.parametrize("output", ["/dev/null/x", "a/" * 3000, "n" * 300])
def test_an_output_that_cannot_be_is_named(adapter: Path, output: str) -> None:
    assert len(refused(adapter, "--output", output=Path(output))) < 400


def test_a_pickled_adapter_is_refused_unread(adapter: Path, tmp_path: Path) -> None:
    weights = load_file(adapter / "adapter_model.safetensors")
    torch.save(weights, adapter / "adapter_model.bin")
    merge_adapter(adapter, tmp_path / "both")  # the safetensors are read
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no adapter_model\.safetensors\. Pickled weights .* are refused") as caught:
        merge_adapter(adapter, tmp_path / "out")
    assert "weights_only" not in str(caught.value)


def test_a_full_fine_tune_has_nothing_to_merge(tmp_path: Path) -> None:
    save_base(tmp_path / "run" / "model")
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        with pytest.raises(ModelError, match=r"fine-tuned in full.*Nothing to merge"):
            merge_adapter(folder, tmp_path / "out")


def test_an_unfinished_run_names_its_newest_checkpoint_which_merges(adapter: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (9, 10):
        shutil.copytree(adapter, run / "checkpoints" / f"step-{step}" / "adapter")
    with pytest.raises(ModelError, match=r"did not end.*step-10 "):
        merge_adapter(run, tmp_path / "out")
    assert merge_adapter(run / "checkpoints" / "step-10", tmp_path / "out").layers == 6


def test_what_is_no_run_at_all_is_said(tmp_path: Path) -> None:
    for name in ("nothing", "n" * 300, "\x1b[31m"):
        with pytest.raises(ModelError, match="is not a folder") as caught:
            merge_adapter(tmp_path / name, tmp_path / "out")
        assert str(caught.value).isprintable()
    with pytest.raises(ModelError, match="holds no adapter"):
        merge_adapter(tmp_path, tmp_path / "out")
