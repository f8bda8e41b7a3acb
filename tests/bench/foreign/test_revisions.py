"""Promise: two commits run beside each other, each from its own worktree and environment, and nothing of them stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.bench.foreign.measure import Command
from dynotune.bench.foreign.process import run
from dynotune.bench.foreign.revisions import checked_out, git, resolved
from dynotune.cli import run as command_line
from dynotune.errors import ConfigError
from dynotune.results.result import Result, Verdict

SAYS = "import sys, project, numpy; print(project.WHICH, project.__file__, sys.prefix)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits, below whose top one stands; the tags are `old` and `new`."""
    top = tmp_path / "project"
    (top / "src" / "project").mkdir(parents=True)
    (top / "work").mkdir()
    (top / "work" / "kept.txt").write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for which in ("old", "new"):
        (top / "src" / "project" / "__init__.py").write_text(f"WHICH = {which!r}\n")
        for words in (
            ["init", "--quiet"],
            ["add", "."],
            ["-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "--quiet", "--message", which],
            ["tag", which],
        ):
            subprocess.run(["git", *words], cwd=top, check=True)
    monkeypatch.chdir(top / "work")
    return top


def said_by(arm: Command, tmp_path: Path) -> list[str]:
    run(arm.words, arm.folder, {**os.environ, **arm.environment}, tmp_path / "out", tmp_path / "err")
    return (tmp_path / "out").read_text().split()


def worktrees(top: Path) -> int:
    return len(git("worktree", "list", at=top).splitlines())


def test_each_commit_runs_its_own_source(project: Path, tmp_path: Path) -> None:
    work = tmp_path / "bench"
    work.mkdir()
    with checked_out(["old", "new"], ("python", "-c", SAYS), None, work, print) as (arms, notes):
        assert [arm.name for arm in arms] == [f"{tag} ({git('rev-parse', tag)[:7]})" for tag in ("old", "new")]
        assert notes == []
        assert worktrees(project) == 3
        for number, (arm, which) in enumerate(zip(arms, ("old", "new"), strict=True)):
            assert arm.folder == work / f"tree-{number}" / "work"
            told, file, prefix = said_by(arm, tmp_path)  # numpy is seen in an environment that has none
            assert told == which
            assert file.startswith(str(work / f"tree-{number}"))
            assert prefix == str(work / f"environment-{number}") != sys.prefix
    assert worktrees(project) == 1
    assert not (work / "tree-0").exists()


@pytest.mark.long
def test_a_setup_runs_once_in_each_and_its_failure_is_said(project: Path, tmp_path: Path) -> None:
    setup = "python -c \"import pip; open('set_up', 'x').write(pip.__file__)\""
    with checked_out(["old", "new"], ("true",), setup, tmp_path, print) as (arms, _):
        for number, arm in enumerate(arms):
            assert (arm.folder / "set_up").read_text().startswith(str(tmp_path / f"environment-{number}"))
    with (
        pytest.raises(ConfigError, match=r"`--setup` at old \(.*SystemExit: no|no compiler"),
        checked_out(["old", "new"], ("true",), "python -c \"raise SystemExit('no compiler')\"", tmp_path / "x", print),
    ):
        pass
    assert worktrees(project) == 1


def test_worktrees_are_gone_after_ctrl_c_and_where_one_cannot_be_made(project: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), checked_out(["old", "new"], ("true",), None, tmp_path, print):
        raise KeyboardInterrupt
    assert worktrees(project) == 1
    (tmp_path / "again" / "tree-1").mkdir(parents=True)
    (tmp_path / "again" / "tree-1" / "in-the-way").write_text("")
    with (
        pytest.raises(ConfigError, match="already exists"),
        checked_out(["old", "new"], ("true",), None, tmp_path / "again", print),
    ):
        pass
    assert worktrees(project) == 1


def test_changes_that_are_in_no_commit_are_said(project: Path, tmp_path: Path) -> None:
    (project / "src" / "project" / "__init__.py").write_text("WHICH = 'changed'\n")
    said: list[str] = []
    with checked_out(["new", "new"], ("python", "-c", SAYS), None, tmp_path, said.append) as (arms, notes):
        assert said_by(arms[0], tmp_path)[0] == "new"
    assert said[0] == notes[0] == "The working tree has changes that are in no commit: they were not measured."


def test_which_commits_are_meant(project: Path) -> None:
    assert [one.called for one in resolved(["new", "new"])] == ["new", "new again"]
    with pytest.raises(ConfigError, match="`--rev new` and `--rev HEAD` are the same commit"):
        resolved(["new", "HEAD"])
    with pytest.raises(ConfigError, match="`--rev newer`: there is no such commit"):
        resolved(["old", "newer"])
    with pytest.raises(ConfigError, match="no such commit"):
        resolved(["old", "--all"])
    with pytest.raises(ConfigError, match="give `--rev` twice"):
        resolved(["old"])


def test_outside_of_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ConfigError, match="needs a project in git"):
        git("rev-parse", "--show-toplevel")


TRAIN = """
import json, project, time
time.sleep(0.05)
print(json.dumps({"tokens": 1000, "seconds": project.SECONDS}))
"""


@pytest.mark.long
def test_two_commits_from_words_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newer one is twice as fast, by what each tells of itself; the changed file of the working tree is not measured."""
    top = tmp_path / "project"
    (top / "src" / "project").mkdir(parents=True)
    (top / "train.py").write_text(TRAIN)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(top)
    source = top / "src" / "project" / "__init__.py"
    subprocess.run(["git", "init", "--quiet"], check=True)
    author = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for which, seconds in (("old", 0.04), ("new", 0.02)):
        source.write_text(f"SECONDS = {seconds}\n")
        subprocess.run(["git", "add", "."], check=True)
        subprocess.run(["git", *author, "commit", "--quiet", "--message", which], check=True)
        subprocess.run(["git", "tag", which], check=True)
    source.write_text("SECONDS = 0.0001\n")
    out = tmp_path / "out"
    words = ["--pairs", "2", "--most_pairs", "2", "--label", "both", "--out", str(out), "--json"]
    assert command_line(["bench", "--rev", "old", "--rev", "new", *words, "--", "python", "train.py"]) == 0
    found = Result.model_validate_json(capsys.readouterr().out)
    [comparison] = found.comparisons
    assert (found.kind, comparison.verdict) == ("revisions", Verdict.FASTER)
    assert comparison.ratio is not None
    assert comparison.ratio.estimate == pytest.approx(2.0)
    assert found.commit == git("rev-parse", "new")[:12]
    assert found.notes[0] == "The working tree has changes that are in no commit: they were not measured."
    assert "both" in found.name
    assert Result.read(out / "bench.json") == found
    assert worktrees(top) == 1
