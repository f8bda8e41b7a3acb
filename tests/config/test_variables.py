"""Promise: what one configuration sets in the environment is its own: a process for another one does not inherit it."""

import os

import pytest

from dynotune.config import variables
from dynotune.config.variables import export_env, without_exported


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "_EXPORTED", {})
    for name in ("DYNOTUNE_T_NEW", "DYNOTUNE_T_OLD"):
        monkeypatch.setenv(name, "x")  # put back behind the test
    monkeypatch.delenv("DYNOTUNE_T_NEW")
    monkeypatch.setenv("DYNOTUNE_T_OLD", "of the shell")


def test_what_was_set_is_taken_away_and_what_was_there_comes_back() -> None:
    export_env({"DYNOTUNE_T_NEW": "1", "DYNOTUNE_T_OLD": "1"})
    export_env({"DYNOTUNE_T_NEW": "2", "DYNOTUNE_T_OLD": "2"})
    assert os.environ["DYNOTUNE_T_NEW"] == os.environ["DYNOTUNE_T_OLD"] == "2"
    found = without_exported()
    assert "DYNOTUNE_T_NEW" not in found
    assert found["DYNOTUNE_T_OLD"] == "of the shell"
    assert os.environ["DYNOTUNE_T_OLD"] == "2", "this process keeps it"


def test_what_someone_else_changed_since_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    export_env({"DYNOTUNE_T_NEW": "1", "DYNOTUNE_T_OLD": "1"})
    monkeypatch.setenv("DYNOTUNE_T_OLD", "changed")
    monkeypatch.delenv("DYNOTUNE_T_NEW")
    assert without_exported()["DYNOTUNE_T_OLD"] == "changed"
    assert "DYNOTUNE_T_NEW" not in without_exported()


def test_what_someone_sets_between_two_configurations_is_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    export_env({"DYNOTUNE_T_NEW": "1"})
    monkeypatch.setenv("DYNOTUNE_T_NEW", "mine")
    export_env({"DYNOTUNE_T_NEW": "2"})
    assert without_exported()["DYNOTUNE_T_NEW"] == "mine"


def test_nothing_set_is_the_environment() -> None:
    assert without_exported() == dict(os.environ)
