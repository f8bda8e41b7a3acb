"""What installed packages ask of each other and do not get."""

from pathlib import Path

import pytest

from dynotune.unmet import Unmet, unmet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, version: str, *requires: str) -> None:
    there = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    there.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (there / "METADATA").write_text("\n".join(lines) + "\n")


def test_a_version_that_was_asked_for_and_is_not_there_is_named(folder: Path) -> None:
    put(folder, "made-up-kernels", "0.6.0", "made-up-compiler==4.6.0", "numpy")
    put(folder, "made-up-compiler", "4.8.1")
    assert list(unmet("made-up-kernels")) == [Unmet("made-up-kernels", "0.6.0", "made-up-compiler==4.6.0", "4.8.1")]


def test_versions_that_agree_are_not(folder: Path) -> None:
    put(folder, "made-up-kernels", "0.6.5", "made-up-compiler>=4.7")
    put(folder, "made-up-compiler", "4.8.1rc1")
    assert not list(unmet("made-up-kernels"))


@pytest.mark.parametrize(
    "asked", ["made-up-compiler==4.6.0; extra == 'dev'", "nobody-has-this==1", "made-up-compiler ~= what"]
)
def test_what_is_asked_by_an_extra_or_is_not_installed_or_not_understood_is_not(folder: Path, asked: str) -> None:
    put(folder, "made-up-kernels", "0.6.0", asked)
    put(folder, "made-up-compiler", "4.8.1")
    assert not list(unmet("made-up-kernels"))
    assert not list(unmet("nobody-has-this"))
