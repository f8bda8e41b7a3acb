"""Promise: a full disk tears no line and loses none."""

import json
import resource
from pathlib import Path

import pytest

from dynotune.train.folder.lines import Lines, add_whole


@pytest.fixture
def room() -> "object":
    """`room(bytes)`: how large a file may become. The system's own limit, so that real writes fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_lines_wait_for_room(tmp_path: Path, room) -> None:  # type: ignore[no-untyped-def]
    said: list[str] = []
    lines = Lines(tmp_path, said.append)
    lines.append("a.jsonl", {"step": 1})
    room(20)
    for step in (2, 3, 4):
        lines.append("a.jsonl", {"step": step})
        assert steps(tmp_path / "a.jsonl") == [1]  # a line that did not fit in full is not there in part
    assert not lines.settle()
    assert (lines.left, len(said)) == (3, 1)
    assert "cannot be written (File too large)" in said[0]
    room(-1)
    lines.append("a.jsonl", {"step": 5})
    assert steps(tmp_path / "a.jsonl") == [1, 2, 3, 4, 5]
    assert lines.settle()
    assert "no line is missing" in said[1]


def test_a_careless_writer_tears_a_line(tmp_path: Path, room) -> None:  # type: ignore[no-untyped-def]
    """Negative control: the same limit, and Python's own file."""
    room(20)
    with pytest.raises(OSError, match="File too large"), (tmp_path / "a").open("a") as file:
        file.write(json.dumps({"step": 1}) + "\n" + json.dumps({"step": 2}) + "\n")
    assert (tmp_path / "a").stat().st_size == 20
    with pytest.raises(OSError, match="File too large"):
        add_whole(tmp_path / "b", b"x" * 21, flush=False)
    assert (tmp_path / "b").stat().st_size == 0


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    said: list[str] = []
    Lines(tmp_path / "gone", said.append).append("a.jsonl", {"step": 1})
    assert steps(tmp_path / "gone" / "a.jsonl") == [1]
    assert "was gone and is made again" in said[0]
