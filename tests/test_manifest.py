"""Promise: one changed byte in a file or in the manifest is noticed, and no manifest leads outside its folder."""

import json
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dynotune.manifest import MANIFEST, DamagedError, Entry, Manifest, below, checksum_of, seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "rows.jsonl").write_bytes(b'{"step": 1}\n')
    (tmp_path / "empty").touch()
    seal(tmp_path, "run", {"step": 3}, below(tmp_path), grow=["rows.jsonl"])
    return tmp_path


def test_an_untouched_folder_is_whole(folder: Path) -> None:
    manifest = Manifest.read(folder)
    assert manifest.damage(folder) == []
    assert set(manifest.files) == {"model/weights", "rows.jsonl", "empty"}
    assert manifest.total_bytes == 256 * 64 + 12
    assert manifest.about == {"step": 3}


@pytest.mark.parametrize("position", [0, 1, 5000, -1])
def test_a_flipped_byte_is_found_by_contents_and_not_by_sizes(folder: Path, position: int) -> None:
    file = folder / "model" / "weights"
    changed = bytearray(file.read_bytes())
    changed[position] ^= 1
    file.write_bytes(changed)
    manifest = Manifest.read(folder)
    assert manifest.damage(folder) == ["model/weights differs from its checksum"]
    assert manifest.damage(folder, contents=False) == []


def test_every_flipped_byte_of_the_manifest_is_found(folder: Path) -> None:
    whole = (folder / MANIFEST).read_bytes()
    for position in range(len(whole)):
        for bits in (1, 0x80, whole[position] ^ 0x20 or 1):
            changed = bytearray(whole)
            changed[position] ^= bits
            (folder / MANIFEST).write_bytes(changed)
            with pytest.raises(DamagedError):
                Manifest.read(folder)


def test_what_is_missing_cut_longer_or_no_file_is_named(folder: Path) -> None:
    manifest = Manifest.read(folder)
    (folder / "empty").write_bytes(b"x")
    (folder / "rows.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n')  # may grow
    assert manifest.damage(folder) == ["empty has 1 bytes; 0 were written"]
    (folder / "empty").unlink()
    (folder / "rows.jsonl").write_bytes(b'{"step": 2}\n{"step": 2}\n')
    assert sorted(manifest.damage(folder)) == ["empty is missing", "rows.jsonl differs from its checksum"]
    (folder / "empty").symlink_to(folder / "rows.jsonl")
    assert "empty is no regular file" in manifest.damage(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "c:/x", "a\\b", "", "."])
def test_a_manifest_that_leads_outside_is_refused_though_its_checksum_is_right(folder: Path, name: str) -> None:
    seal(folder, "run", {}, [])
    Manifest("run", {name: Entry(0, "0")}).write(folder)
    with pytest.raises(DamagedError, match="no file below its folder"):
        Manifest.read(folder)


KEYS = st.sampled_from(["format", "kind", "files", "about", "checksum", "x"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.just(1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_stands_in_a_manifest_is_damage_and_no_crash(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / MANIFEST).write_bytes(text)
    with pytest.raises(DamagedError):
        Manifest.read(folder)
    (folder / MANIFEST).write_bytes(b"[" * 100_000)
    with pytest.raises(DamagedError):
        Manifest.read(folder)


def test_checksums_are_those_of_the_xxhash_library(tmp_path: Path) -> None:
    data = bytes(range(251)) * 50_000
    (tmp_path / "x").write_bytes(data)
    assert checksum_of(tmp_path / "x") == (len(data), xxhash.xxh3_128(data).hexdigest())
    assert checksum_of(tmp_path / "x", 100) == (100, xxhash.xxh3_128(data[:100]).hexdigest())
