"""Promise: what is on disk is whole, of this key and finite, or it is not used."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dynotune.manifest import DamagedError
from dynotune.reference import segments
from dynotune.reference.key import Key, differing
from dynotune.reference.pairs import pair_digests
from dynotune.reference.segments import folder_of, paths, read, read_all, write
from tests.reference.pairs import KEY, MADE_BY, Reference, damage, many


def written(root: Path, key: Key = KEY, seed: int = 0, count: int = 5) -> Path:
    pairs = many(count, seed)
    values = Reference(pairs, key.columns).right(range(count))
    return write(folder_of(root, key), key, MADE_BY, pair_digests(pairs), values)


@pytest.mark.parametrize("key", [KEY, replace(KEY, tails=True)])
def test_what_was_written_is_read(tmp_path: Path, key: Key) -> None:
    path = written(tmp_path, key)
    segment = read(path, expected=path.parent.name)
    pairs = many(5)
    assert (segment.digests == pair_digests(pairs)).all()
    assert (segment.values == Reference(pairs, key.columns).right(range(5))).all()
    assert segment.made_by == MADE_BY
    assert segment.key == key.told()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("at", [0, 10, 40, 100, 250, -200, -41, -1])
def test_any_changed_byte_is_noticed_and_the_segment_goes(tmp_path: Path, at: int) -> None:
    path, other = written(tmp_path), written(tmp_path, seed=1)
    damage(path, at)
    found, damaged = read_all(path.parent)
    assert len(found) == 1
    assert len(damaged) == 1
    assert path.name in damaged[0]
    assert paths(path.parent) == [other]
    assert read_all(path.parent)[1] == []


@pytest.mark.parametrize("kept", [0, 1, 50, 300, -1])
def test_a_truncated_file_is_noticed(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedError):
        read(path)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"{}\n", b"[]\n", b'{"checksum": 1, "count": true}\n', b"\xff\n", b"[" * 70_000]
)
def test_what_is_no_segment_is_said(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "x.segment"
    path.write_bytes(text)
    with pytest.raises(DamagedError, match=r"x\.segment"):
        read(path)


def test_a_segment_of_another_key_is_not_taken(tmp_path: Path) -> None:
    """Copied by hand, or by a program that means well."""
    path, other = written(tmp_path), written(tmp_path, replace(KEY, precision="bfloat16"), seed=1)
    other.rename(path.parent / other.name)
    found, damaged = read_all(path.parent)
    assert len(found) == 1
    assert "belongs to another folder" in damaged[0]


def test_values_that_are_not_finite_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = many(2)
    values = np.array([[1.0, np.nan], [2.0, 3.0]])
    with pytest.raises(AssertionError):
        write(tmp_path, KEY, MADE_BY, pair_digests(pairs), values)
    monkeypatch.setattr(segments.np, "isfinite", lambda array: np.ones(array.shape, bool))
    path = write(tmp_path, KEY, MADE_BY, pair_digests(pairs), values)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match="not finite"):
        read(path)


def test_links_and_what_was_never_finished_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path.parent / ".writing-1-abc").write_bytes(path.read_bytes())
    (path.parent / "link.segment").symlink_to(path)
    found, damaged = read_all(path.parent)
    assert len(found) == 1
    assert "link.segment is no regular file" in damaged[0]
    os.utime(path.parent / ".writing-1-abc", (0, 0))
    written(tmp_path, seed=1)
    assert not (path.parent / ".writing-1-abc").exists()


def test_no_folder_is_no_segment(tmp_path: Path) -> None:
    assert read_all(tmp_path / "none") == ([], [])


def test_every_part_of_the_key_makes_another_folder_and_is_said_in_words() -> None:
    assert replace(KEY).name() == KEY.name()
    others = {
        "weights": replace(KEY, weights="w1"),
        "configuration": replace(KEY, config="c1"),
        "precision": replace(KEY, precision="bfloat16"),
        "quantisation": replace(KEY, quantisation="nf4"),
        "tails": replace(KEY, tails=True),
        "way of computing": replace(KEY, semantics=KEY.semantics + 1),
    }
    assert len(others) == len(KEY.told())
    for word, other in others.items():
        assert other.name() != KEY.name()
        (said,) = differing(other.told(), KEY)
        assert word in said
    assert differing(json.loads(json.dumps(KEY.told())), KEY) == []


def test_learning_rate_seed_loss_and_output_folder_are_no_part_of_the_key() -> None:
    assert set(KEY.told()) == {"weights", "config", "precision", "quantisation", "tails", "semantics"}
