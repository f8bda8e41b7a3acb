"""Promise: what was compiled is found again by the next run, in Dynotune's cache folder unless the user named a place."""

import os
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from dynotune.model.compiled.cache import VARIABLE, CompileCache


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "unset below")
    monkeypatch.delenv(VARIABLE)
    return tmp_path / "cache" / "compiled"


def test_it_lies_in_our_folder_while_it_stands(place: Path) -> None:
    cache = CompileCache()
    assert cache.folder == os.environ[VARIABLE] == str(place)
    assert place.is_dir()
    cache.close()
    assert VARIABLE not in os.environ
    cache.close()


def test_pytorchs_default_is_nobodys_wish(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, default_cache_dir())
    cache = CompileCache()
    assert cache.folder == str(place)
    cache.close()
    assert os.environ[VARIABLE] == default_cache_dir()


def test_the_users_place_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    cache = CompileCache()
    assert cache.is_users
    assert cache.folder == os.environ[VARIABLE] == str(tmp_path / "mine")
    cache.close()
    assert os.environ[VARIABLE] == str(tmp_path / "mine")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "a file"))
    cache = CompileCache()
    assert cache.note is not None
    assert "cannot be written" in cache.note
    assert cache.folder == default_cache_dir()
    assert VARIABLE not in os.environ
