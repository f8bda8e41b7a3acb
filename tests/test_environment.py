"""`dynotune env` and `environment.json`: true, complete, and free of secrets."""

import json
import os
from pathlib import Path

import pytest

from dynotune import environment


def test_collect_is_plain_json_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file travels with a model: no tokens, no paths, no user or host name."""
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    found = environment.collect(tmp_path / "not" / "made" / "yet")
    text = json.dumps(found)
    assert "s3cret" not in text
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text
    assert os.uname().nodename not in text
    assert found["packages"]["torch"].startswith(found["torch"]["version"].split("+")[0])
    assert found["memory"]["total"] > 0
    assert set(found["disk"]) == {"current_folder", "hugging_face_cache", "output_dir"}
    assert "accelerators" not in found


def test_screen_shows_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that was found is left out of the screen."""
    found = environment.collect()
    found["gpus"] = [{"name": "Some GPU", "memory": 2**37, "free": 2**36, "capability": "9.0"}]
    found["driver"] = {"version": "999.1", "other_processes": [{"pid": 77, "memory": 2**30}]}
    found["accelerators"] = [{"name": "flash-attn", "version": "9", "status": "import failed", "reason": "bad symbol"}]
    environment.show(found)
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "Some GPU",
        "64.0 GiB free of 128.0 GiB",
        "999.1",
        "process 77, 1.0 GiB",
        "import failed: bad symbol",
    ):
        assert words in text
