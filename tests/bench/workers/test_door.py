"""Promise: a bench's processes find each other in a folder of any length."""

import socket
from pathlib import Path

import pytest

from dynotune.bench.workers.door import address


@pytest.mark.parametrize("name", ["short", "a" * 120])
def test_both_ends_meet(tmp_path: Path, name: str) -> None:
    """Control: the system itself refuses the longer path."""
    folder = tmp_path / name
    folder.mkdir()
    path = folder / "it.sock"
    with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as other:
        if name != "short":
            with pytest.raises(OSError, match="too long"):
                door.bind(str(path))
        with address(path) as short:
            door.bind(short)
        door.listen(1)
        with address(path) as short:
            other.connect(short)
        assert path.is_socket()
