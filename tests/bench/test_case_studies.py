"""Promise: a lent GPU's time is not lost: what a case had measured is kept whoever ends it, under names that hold elsewhere,
and a page says of a case what its result says, and of one without a result nothing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks import case_pages, case_studies
from benchmarks.case_list import CASES, kept_of

from dynotune.bench.asking.schedule import Rules
from dynotune.bench.command import Options, changes_of
from dynotune.bench.keeping.so_far import CUT_OFF
from dynotune.cli import app
from dynotune.config.load import load_config
from dynotune.results.result import Result
from tests.bench.made import ab, attribute, ladder, withdrawn

ROOT = Path(__file__).parents[2]

BENCH = """
import pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True, exist_ok=True)
(out / "bench.json").write_text(pathlib.Path({result!r}).read_text().replace("FOLDER", str(out)))
print("written", flush=True)
time.sleep({seconds})
"""


def bench(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 0, **parts: Any) -> tuple[str, ...]:
    """In the place of `dynotune bench`: it leaves a result and goes on for some seconds."""
    one = ab(**{"command": "dynotune bench --out FOLDER", "commit": None, "notes": (), **parts})
    (folder / "result.json").write_text(one.model_dump_json())
    program = folder / "program.py"
    program.write_text(BENCH.format(result=str(folder / "result.json"), seconds=seconds))
    monkeypatch.setattr(case_studies, "PROGRAM", (sys.executable, "-S", str(program)))
    return case_studies.PROGRAM


def asked(folder: Path, commit: str = "abcdef123456") -> argparse.Namespace:
    return argparse.Namespace(out=folder / "out", shared=None, rehearse=False, commit=commit)


def ran(folder: Path, left: float | None = None) -> bool:
    (folder / "out").mkdir(exist_ok=True)
    return case_studies.run("liger", asked(folder), folder / "work", left)


def test_a_case_is_kept_without_folders_and_with_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(tmp_path, monkeypatch)
    assert ran(tmp_path)
    [path] = (tmp_path / "out").glob("case_*.json")
    one = Result.read(path)
    assert path.name == "case_liger_h200.json"
    assert one.commit == "abcdef123456"
    assert one.command == "dynotune bench --out OUT/benches/liger"
    assert str(tmp_path) not in path.read_text()
    assert case_studies.is_there(tmp_path / "out", "liger", "abcdef1")
    assert not case_studies.is_there(tmp_path / "out", "liger", "fedcba1"), "another commit is measured again"


def test_a_case_that_takes_too_long_leaves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bench(tmp_path, monkeypatch, seconds=600, notes=(CUT_OFF.format(3),), cut_off=True)
    process = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words: _once_written(process(words), tmp_path))
    assert not ran(tmp_path, left=0.01)
    [path] = (tmp_path / "out").glob("case_*.json")
    assert Result.read(path).notes == (CUT_OFF.format(3),)
    assert "CUT OFF: these are the first 3 rounds" in capfd.readouterr().out
    assert not case_studies.is_there(tmp_path / "out", "liger", "abcdef1"), "it is measured again"
    path.write_text(Result.read(path).model_copy(update={"cut_off": False}).model_dump_json())
    assert case_studies.is_there(tmp_path / "out", "liger", "abcdef1"), "control: the words of a note decide nothing"


def _once_written(process: subprocess.Popen[Any], folder: Path) -> subprocess.Popen[Any]:
    """However busy the host is, it is cut off behind its result."""
    while not (folder / "out" / "benches" / "liger" / "bench.json").exists() and process.poll() is None:
        time.sleep(0.01)
    return process


@pytest.mark.long
def test_whoever_ends_the_cases_ends_the_bench_and_keeps_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = bench(tmp_path, monkeypatch, seconds=600, notes=(CUT_OFF.format(2),), cut_off=True)
    code = (
        f"import sys; from benchmarks import case_studies; case_studies.PROGRAM = {program!r};"
        f" sys.argv = ['x', '--out', {str(tmp_path / 'out')!r}, '--only', 'liger,batch', '--commit', 'abcdef1'];"
        " raise SystemExit(case_studies.main())"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    cases = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert cases.stdout is not None
    assert cases.stdout.readline() == "written\n"
    cases.send_signal(signal.SIGTERM)
    told, _ = cases.communicate()
    assert cases.returncode == 143
    assert "the first 2 rounds" in told
    assert (tmp_path / "out" / "case_liger_h200.json").exists()
    assert not (tmp_path / "out" / "benches" / "batch").exists(), "the next one is not begun"


def test_what_does_not_fit_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bench(tmp_path, monkeypatch)
    budget = CASES["ladder"].seconds - 1
    monkeypatch.setattr(
        sys, "argv", ["x", "--out", str(tmp_path / "out"), "--only", "ladder,liger", "--budget", str(budget)]
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert case_studies.main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert f"ladder: not run: {CASES['ladder'].seconds} s expected" in capfd.readouterr().out
    assert [path.name for path in (tmp_path / "out").glob("case_*")] == ["case_liger_h200.json"]


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_a_bench_that_can_be_asked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its words as the command line reads them, and of its configuration with each change."""
    config, _ = case_studies.config_of(CASES[name].config, CASES[name].layers, None, tmp_path)
    for variable in yaml.safe_load(config.read_text()).get("env") or {}:
        monkeypatch.setenv(variable, "")  # what is loaded sets it; it is put back
    words = case_studies.words_of(name, config, [], tmp_path / "out", tmp_path)
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    given = bound.arguments
    resolved = load_config(config, {})
    for change in given.get("changes") or ():
        assert changes_of(resolved, [change])
    Rules(pairs=given.get("pairs", 6), most_pairs=given.get("most_pairs", 16))
    assert Options(resolved, "base", parity=given.get("parity", "gate")).parity in ("gate", "off")
    assert CASES[name].seconds <= 590 - 60, "it fits into one call of `on_gpu.sh`, which keeps 60 s for its end"


def test_pages_are_what_the_results_say(tmp_path: Path) -> None:
    assert case_pages.main(["--check"]) == 0
    copy = tmp_path / "cases"
    assert case_pages.main(["--pages", str(copy)]) == 0
    page = copy / "floor.md"
    page.write_text(page.read_text().replace("±0.41 %", "±0.14 %"))
    assert case_pages.main(["--check", "--pages", str(copy)]) == 1, "control: a figure by hand is found"
    assert case_pages.main(["--pages", str(copy)]) == 0
    assert case_pages.main(["--check", "--pages", str(copy)]) == 0


def test_what_was_withdrawn_says_so_on_its_page_and_in_the_index(tmp_path: Path) -> None:
    """And it is measured again. Control: what was not."""
    path = tmp_path / "case_ladder_h200.json"
    path.write_text(ladder(commit="abcdef123456").model_dump_json())
    assert "(withdrawn)" not in case_pages.pages(tmp_path)["index.md"]
    assert case_studies.is_there(tmp_path, "ladder", "abcdef1")
    path.write_text(ladder(commit="abcdef123456", withdrawn=withdrawn().withdrawn).model_dump_json())
    made = case_pages.pages(tmp_path)
    assert "WITHDRAWN on 2026-11-23: its tokens counted padding" in made["ladder.md"]
    assert "(ladder.md) | 1x NVIDIA H200 (withdrawn) |" in made["index.md"]
    assert not case_studies.is_there(tmp_path, "ladder", "abcdef1")


def test_the_attribution_of_the_plans_of_cudnn_is_withdrawn() -> None:
    """Its blocks stood still for 3.35 s beside 0.17 s of the same arm; the page of what was measured instead says so."""
    result = Result.read(case_pages.RESULTS / "case_attribute_h200.json")
    seconds = [block.seconds for arm in result.arms for block in arm.counted if arm.name == "all but attention_fa3"]
    assert max(seconds) / min(seconds) > 10
    assert result.withdrawn is not None
    page = " ".join((case_pages.PAGES / "attribute_alone.md").read_text().split())
    assert "case_attribute_h200.json" in page
    assert "was withdrawn on 2026-11-26: measured at 89a0f9c" in page
    assert "+ attention_fa3" not in page, "none of its figures"


def test_the_halves_of_an_attribution_stand_side_by_side(tmp_path: Path) -> None:
    """In one table where both were measured of the same work, with the doubt of both. Controls: one half alone, another
    operating point, one that was withdrawn."""
    both = attribute()
    halves = {
        f"case_attribute_{role}_h200.json": attribute(
            comparisons=tuple(one for one in both.comparisons if one.role == role)
        )
        for role in ("alone", "last")
    }
    head = "## Both halves on 1x NVIDIA H200"
    for name, result in halves.items():
        assert head not in case_pages.pages(tmp_path)["attribute_last.md"]
        (tmp_path / name).write_text(result.model_dump_json())
    page = case_pages.pages(tmp_path)["attribute_last.md"]
    assert head in page
    assert "| packed_execution | 2.280x [2.276, 2.284] | 2.190x [2.186, 2.194] | 0.961x [0.958, 0.963] |" in page
    assert "| change | alone, on base | added last |" in page
    for parts in ({"operating_point": "another"}, {"withdrawn": withdrawn().withdrawn}, {"cut_off": True}):
        other = halves["case_attribute_alone_h200.json"].model_copy(update=parts)
        (tmp_path / "case_attribute_alone_h200.json").write_text(other.model_dump_json())
        assert head not in case_pages.pages(tmp_path)["attribute_last.md"]


def test_a_case_is_not_taken_for_another_whose_name_begins_alike(tmp_path: Path) -> None:
    for name in ("case_ladder_dpo_h200.json", "case_ladder_h200.json", "case_packing_ladder_cpu.json"):
        (tmp_path / name).write_text(ladder(commit="abcdef123456").model_dump_json())
    assert [path.name for path in kept_of("ladder", tmp_path)] == ["case_ladder_h200.json"]
    assert [path.name for path in kept_of("ladder_dpo", tmp_path)] == ["case_ladder_dpo_h200.json"]
    (tmp_path / "case_ladder_h200.json").unlink()
    assert not case_studies.is_there(tmp_path, "ladder", "abcdef1")
    assert case_studies.is_there(tmp_path, "ladder_dpo", "abcdef1")


def test_a_page_claims_what_was_measured_and_nothing_else(tmp_path: Path) -> None:
    empty = case_pages.pages(tmp_path)["ladder.md"]
    assert "nothing is claimed" in empty
    assert "--only ladder" in empty
    (tmp_path / "case_ladder_h200.json").write_text(ladder().model_dump_json())
    full = case_pages.pages(tmp_path)
    assert ladder().sentence.split(";")[0] in full["ladder.md"].replace("\\", "")
    assert "## On 1x NVIDIA H200" in full["ladder.md"]
    assert "rehearsal" not in full["ladder.md"].partition("## On")[2]
    on_a_cpu = json.loads(ladder().model_dump_json()) | {"model": {"device": "CPU"}}
    (tmp_path / "case_ladder_h200.json").write_text(json.dumps(on_a_cpu))
    assert "A rehearsal of a tiny model on a CPU" in case_pages.pages(tmp_path)["ladder.md"]
