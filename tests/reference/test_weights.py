"""Promise: other weights have another digest, the same ones are read once, and a file that changes is noticed."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dynotune.data.sources.contents import FileState
from dynotune.reference import weights
from dynotune.reference.weights import config_digest, files_digest
from tests.tiny import tiny_model


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two shards."""
    made = []
    for i in range(2):
        path = tmp_path / "model" / f"model-{i + 1}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file({"a": torch.arange(50.0) + i}, path)
        made.append(path)
    return made


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test were written just now, when a clock's tick may hide a change: `is_still` would not trust them."""
    monkeypatch.setattr("dynotune.data.sources.contents._SETTLED", -(10**12))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    part = weights._part_digest
    monkeypatch.setattr(
        weights, "_part_digest", lambda path, start: (seen.append(Path(path).name), part(path, start))[1]
    )
    return seen


def test_files_are_read_once_and_by_another_path_give_the_same(
    tmp_path: Path, files: list[Path], reads: list[str]
) -> None:
    memory = tmp_path / "cache" / "weights.json"
    first = files_digest(files, memory)
    assert sorted(reads) == ["model-1.safetensors", "model-2.safetensors"]
    assert files_digest(list(reversed(files)), memory) == first
    assert len(reads) == 2
    copy = tmp_path / "copy"
    copy.mkdir()
    copies = [copy / path.name for path in files]
    for path, other in zip(files, copies, strict=True):
        other.write_bytes(path.read_bytes())
    assert files_digest(copies, memory) == first
    assert len(reads) == 4
    link = tmp_path / "link.safetensors"
    link.symlink_to(files[0])
    files_digest([link], memory)
    assert len(reads) == 4


def test_a_changed_file_is_read_again_and_gives_another_digest(
    tmp_path: Path, files: list[Path], reads: list[str]
) -> None:
    memory = tmp_path / "weights.json"
    first = files_digest(files, memory)
    save_file({"a": torch.arange(50.0) + 7}, files[1])  # of the same size
    second = files_digest(files, memory)
    assert second != first
    assert reads[2:] == ["model-2.safetensors"]
    save_file({"a": torch.arange(50.0) + 1}, files[1])
    assert files_digest(files, memory) == first


def test_a_file_written_just_now_is_not_taken_on_trust(
    tmp_path: Path, files: list[Path], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynotune.data.sources.contents._SETTLED", 2_000_000_000)
    files_digest(files, tmp_path / "weights.json")
    files_digest(files, tmp_path / "weights.json")
    assert len(reads) == 4


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"path": 3}]', "[1]", '[{"path": "x", "hash": "y", "more": 1}]'])
def test_a_spoilt_memory_costs_a_reading(tmp_path: Path, files: list[Path], reads: list[str], text: str) -> None:
    memory = tmp_path / "weights.json"
    first = files_digest(files, memory)
    memory.write_text(text)
    assert files_digest(files, memory) == first
    assert len(reads) == 4
    assert files_digest(files, memory) == first
    assert len(reads) == 4


def test_a_memory_that_cannot_be_written_changes_nothing(tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "file").touch()
    assert files_digest(files, tmp_path / "file" / "weights.json") == files_digest(files, tmp_path / "weights.json")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files_digest([tmp_path / "none.safetensors"], tmp_path / "weights.json")


def test_a_file_is_read_in_parts_whose_order_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_PART", 1 << 12)
    monkeypatch.setattr(weights, "_READ", 1 << 10)
    halves = os.urandom(1 << 12), os.urandom((1 << 12) - 5)
    digests = set()
    for number, whole in enumerate((halves[0] + halves[1], halves[0] + halves[0], halves[1] + halves[0], b"")):
        path = tmp_path / f"{number}" / "w"
        path.parent.mkdir()
        path.write_bytes(whole)
        digests.add(files_digest([path], tmp_path / "weights.json"))
    assert len(digests) == 4


def test_the_memory_forgets_the_oldest(tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_MOST", 1)
    files_digest(files, tmp_path / "weights.json")
    assert [Path(path).name for path in weights._remembered(tmp_path / "weights.json")] == ["model-2.safetensors"]
    assert isinstance(next(iter(weights._remembered(tmp_path / "weights.json").values())), FileState)


def test_a_rope_base_counts_and_where_the_model_lies_does_not() -> None:
    config = tiny_model().config
    first = config_digest(config.to_dict())
    config._name_or_path = "elsewhere"
    config.use_cache = False
    assert config_digest(config.to_dict()) == first
    config.rope_parameters = {"rope_type": "default", "rope_theta": 12345.0}
    assert config_digest(config.to_dict()) != first


def test_a_set_counts_by_what_it_holds() -> None:
    """Its order is another one in another process."""
    names = [f"layer{i}" for i in range(50)]
    assert config_digest({"targets": set(names)}) == config_digest({"targets": sorted(names)})
    assert config_digest({"targets": set(names[1:])}) != config_digest({"targets": set(names)})
