"""Promise: what a script calls its model by never ends the script."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dynotune.profile.foreign.inside.facts import environment


@pytest.mark.parametrize("name", ["m" * 5000, "a\0b", "/" + "m/" * 5000])
def test_a_name_that_is_no_path_is_no_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a folder is one."""
    asked: list[dict[str, Path]] = []

    def asks(device: Any, *, paths: dict[str, Path], **rest: Any) -> dict[str, Any]:
        asked.append(paths)
        return {}

    monkeypatch.setattr("dynotune.profile.records.facts.environment_of", asks)
    for one in (name, str(tmp_path)):
        model: Any = SimpleNamespace(config=SimpleNamespace(_name_or_path=one))
        environment(None, None, None, model)  # type: ignore[arg-type]
    assert [paths.get("model") for paths in asked] == [None, tmp_path]
