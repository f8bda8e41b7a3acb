"""Promise: no pickle is read, whatever a model's folder or an adapter's names; the error says what to do."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ModelError
from dynotune.model.load import load_model
from dynotune.model.precision import Precision
from dynotune.model.weight_files import weight_paths
from tests.tiny import tiny_model


def load(name: Path | str, **settings: Any) -> Any:
    return load_model(
        ModelConfig(model_name_or_path=str(name), **settings), Precision(torch.float32, False), torch.device("cpu")
    )


class Touch:
    """A pickle of it makes a file when it is read without care."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A model in several files, with an index."""
    tiny_model().save_pretrained(tmp_path / "model", max_shard_size="40KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    return tmp_path / "model"


def rename_part(folder: Path, name: str, index: str = "model.safetensors.index.json") -> None:
    content = json.loads((folder / index).read_text())
    first = next(iter(content["weight_map"].values()))
    content["weight_map"] = {k: name if v == first else v for k, v in content["weight_map"].items()}
    (folder / index).write_text(json.dumps(content))


def test_an_index_of_safetensors_is_read(sharded: Path) -> None:
    expected = tiny_model().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in load(sharded).state_dict().items())


@pytest.mark.parametrize("make", [torch.save, lambda value, file: file.write_bytes(pickle.dumps(value))])
def test_an_index_that_names_a_pickle_is_refused_unread(sharded: Path, tmp_path: Path, make: Any) -> None:
    make(tiny_model().state_dict() if make is torch.save else Touch(tmp_path / "ran"), sharded / "weights.pkl")
    rename_part(sharded, "weights.pkl")
    with pytest.raises(ModelError, match=r"index\.json names weights\.pkl.*safetensors"):
        load(sharded)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/x.safetensors", "a/../../b.safetensors", "\x1b[31m"])
def test_an_index_names_files_inside_the_folder_only(sharded: Path, name: str) -> None:
    (sharded.parent / "other.safetensors").write_bytes((next(sharded.glob("*.safetensors"))).read_bytes())
    rename_part(sharded, name)
    with pytest.raises(ModelError, match="inside the model's folder") as caught:
        load(sharded)
    assert str(caught.value).isprintable()


def test_a_variant_and_a_subfolder_are_looked_into_too(sharded: Path, tmp_path: Path) -> None:
    rename_part(sharded, "weights.pkl")
    (sharded / "model.safetensors.index.json").rename(sharded / "model.safetensors.index.fp16.json")
    with pytest.raises(ModelError, match=r"index\.fp16\.json names weights\.pkl"):
        load(sharded, model_init_kwargs={"variant": "fp16"})
    with pytest.raises(ModelError, match=r"index\.fp16\.json names weights\.pkl"):
        load(tmp_path, model_init_kwargs={"variant": "fp16", "subfolder": "model"})


def test_a_configuration_that_names_its_weights_is_looked_into(sharded: Path) -> None:
    settings = json.loads((sharded / "config.json").read_text())
    for name, said in (("adapter_model.bin", r"config\.json names adapter_model\.bin"), ("../x.json", "inside")):
        (sharded / "config.json").write_text(json.dumps(settings | {"transformers_weights": name}))
        with pytest.raises(ModelError, match=said):
            load(sharded)


def test_a_model_from_the_hub_is_looked_into_before_its_parts_are_read(sharded: Path, tmp_path: Path) -> None:
    rename_part(sharded, "weights.pkl")
    cache = tmp_path / "cache" / "models--someone--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("a" * 40)
    (cache / "snapshots").mkdir()
    sharded.rename(cache / "snapshots" / ("a" * 40))
    with pytest.raises(ModelError, match=r"names weights\.pkl"):
        load("someone/model", model_init_kwargs={"cache_dir": str(tmp_path / "cache")})


def test_a_part_that_was_not_downloaded_is_named(sharded: Path) -> None:
    part = next(sharded.glob("*.safetensors"))
    part.unlink()
    with pytest.raises(ModelError, match=rf"lacks {part.name}.*interrupted download"):
        load(sharded)


@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"weight_map": []}'])
def test_an_index_that_is_none_says_so(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=r"index\.json .*Download the file again"):
        load(sharded)


def test_the_files_that_a_loader_reads_are_named(sharded: Path, tmp_path: Path) -> None:
    """What the digest of the weights is made of: a file that it lacked could change unseen."""
    parts = sorted(sharded.glob("*.safetensors"))
    assert weight_paths(str(sharded), "main", {}) == parts
    (sharded / "other.safetensors").touch()  # not the model's
    assert weight_paths(str(sharded), "main", {}) == parts
    assert weight_paths(str(sharded.parent), "main", {"subfolder": sharded.name}) == parts
    parts[1].unlink()
    with pytest.raises(ModelError, match=f"lacks {parts[1].name}"):
        weight_paths(str(sharded), "main", {})
    whole = tmp_path / "whole"
    tiny_model().save_pretrained(whole)
    assert weight_paths(str(whole), "main", {}) == [whole / "model.safetensors"]
    (whole / "model.safetensors").rename(whole / "model.fp16.safetensors")
    assert weight_paths(str(whole), "main", {"variant": "fp16"}) == [whole / "model.fp16.safetensors"]
    assert weight_paths(str(whole), "main", {}) == []
    assert weight_paths(str(whole / "config.json"), "main", {}) == []
    settings = json.loads((whole / "config.json").read_text())
    (whole / "config.json").write_text(json.dumps({**settings, "transformers_weights": "model.fp16.safetensors"}))
    assert weight_paths(str(whole), "main", {}) == [whole / "model.fp16.safetensors"]
    assert load(whole) is not None
