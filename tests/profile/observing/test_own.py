"""Promise: `dynotune profile` takes a user's configuration as it is, and what it writes opens anywhere."""

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from dynotune.cli import run
from dynotune.config.sft import SFTConfig
from dynotune.execution import feed
from dynotune.execution.feed import Feed
from dynotune.measure.kernel_classes import Work
from dynotune.measure.traces.step import Sample
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.command import Options, finish
from dynotune.profile.observing import observer
from dynotune.profile.observing.observer import TRACED
from dynotune.profile.observing.own import Asked, observe
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import read_record
from dynotune.profile.showing.keep import keep
from dynotune.profile.showing.screen import LINES, screen
from dynotune.train import engagement
from dynotune.train.traced_part import traced_part
from tests.tiny import chats, tiny_model, tiny_tokenizer
from tests.told_time import told_time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a tiny model and rows."""
    path = tmp_path_factory.mktemp("profile")
    tiny_model().save_pretrained(path / "model")
    tiny_tokenizer().save_pretrained(path / "model")
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(40)))
    return path


def config(folder: Path, **more: Any) -> SFTConfig:
    return SFTConfig(
        model_name_or_path=str(folder / "model"), dataset_name=str(folder / "rows.jsonl"), max_length=64, use_cpu=True,
        per_device_train_batch_size=2, logging_steps=4, report_to="none", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def observed(folder: Path) -> Record:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
        asked = Asked(6, "dynotune bench --config x.yaml --set {change}")
        return observe(config(folder), asked, Console(quiet=True))


def test_steps_are_timed_and_others_traced(observed: Record) -> None:
    assert len(observed.timed) == 6
    assert len(observed.traced) == TRACED
    assert all(one.real_tokens and one.seconds > 0 and one.data_wait is not None for one in observed.timed)
    assert observed.timed[-1].number < observed.traced[0].number
    assert observed.warm_up.steps >= 10
    assert any(one.happened == ("log",) for one in observed.timed)
    assert sum(observed.traced[0].lengths) == observed.traced[0].real_tokens


def test_all_micro_batches_of_a_step_are_traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile says on what the step is spent. Control: the proof in the same run took some of them."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    parts: list[Sample] = []

    def watched(*step: Any) -> Sample:
        parts.append(traced_part(*step))
        return parts[-1]

    monkeypatch.setattr(engagement, "traced_part", watched)
    many = config(folder, packed_execution="off", gradient_accumulation_steps=2)
    record = observe(many, Asked(2, "dynotune bench"), Console(quiet=True))
    assert [len(part.numbers) for part in parts] == [2]
    assert [one.micro_batches for one in record.traced] == [4] * TRACED
    assert all(one.facts["traced_micro_batches"] == [0, 1, 2, 3] for one in record.traced)
    for one in record.traced:
        assert set(one.where.micro_batch.tolist()) == {-1, 0, 1, 2, 3}


def test_beside_another_profiler_nothing_is_traced_and_it_ends(folder: Path) -> None:
    """It went on until somebody ended it. Control: the fixture's, which is alone, has traces."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        record = observe(config(folder), Asked(2, warm_up=1), Console(quiet=True))
    assert not record.traced
    assert len(record.timed) == 2
    assert any("another profiler ran in this process" in note for note in record.notes)


def test_the_classes_add_up_to_the_step(observed: Record) -> None:
    found = analyse(observed)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.step_seconds, rel=1e-9)
    spent = {row.work: row.seconds for row in found.rows}
    assert all(spent.get(work) for work in (Work.GEMM, Work.ATTENTION, Work.HEAD, Work.OPTIMIZER, Work.ELEMENTWISE))
    assert not spent.get(Work.OTHER)


def test_a_cpu_is_said_to_be_one(observed: Record) -> None:
    assert any("this is a CPU" in line for line in analyse(observed).cannot_know)


def test_nothing_is_advised_that_cannot_run_here(observed: Record) -> None:
    """Of what is off, what needs a GPU, an adapter, or another speed-up that does, is left out on the CPU."""
    states = {one.name: one for one in observed.speedups}
    assert "no GPU" in states["step_graphs"].reason
    assert states["lora_in_activation"].state == "left out"
    assert states["compiled_layers"].state == "off"
    advised = {one.name for one in analyse(observed).remedies}
    assert "compiled_layers" in advised
    assert not advised & {"step_graphs", "lora_in_activation"}


def test_under_lora_too_what_needs_a_kernel_of_the_gpu_is_not_advised(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    lora = config(folder, use_peft=True, lora_target_modules="all-linear", lora_dropout=0.0)
    record = observe(lora, Asked(2, "{change}", warm_up=2), Console(quiet=True))
    state = {one.name: one for one in record.speedups}["lora_in_activation"]
    assert state.state == "left out"
    assert state.reason.endswith("there is no GPU")


def test_a_feed_that_is_slow_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to be: on a busy host all else may be as slow as what sleeps."""
    make, told = Feed._make, told_time(monkeypatch, feed, observer)

    def slowly(self: Feed, batch: Any) -> Any:
        told.sleep(0.15)
        return make(self, batch)

    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    monkeypatch.setattr(Feed, "_make", slowly)
    monkeypatch.setattr("dynotune.profile.observing.observer.MOST_STEPS", 3)
    found = analyse(observe(config(folder, speedups={"prefetch": "off"}), Asked(2), Console(quiet=True)))
    assert found.found[0].name == "slow-loader"
    assert found.found[0].seconds == pytest.approx(0.15, abs=0.05)  # making a batch takes some processor time
    assert "waiting for data" in found.bottleneck
    assert found.remedies[0].setting == "speedups.prefetch=on"


def test_the_files_open_anywhere_and_load_nothing(observed: Record, tmp_path: Path) -> None:
    findings = analyse(observed)
    files = [Path(name) for name in keep(observed, findings, tmp_path / "out")]
    assert all(path.is_file() and path.stat().st_size < 2e6 for path in files)
    html = (tmp_path / "out" / "profile.html").read_text()
    assert "<script" not in html
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", html)
    told = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert told["findings"]["clean"] == findings.clean
    with gzip.open(tmp_path / "out" / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    classes = [one for one in events if one.get("cat") == "class"]
    whole = sum(one.where.step[1] - one.where.step[0] for one in observed.traced) / 1e3
    assert sum(one["dur"] for one in classes) == pytest.approx(whole)
    again = read_record(tmp_path / "out" / "record.json.gz")
    assert analyse(again) == findings


@pytest.mark.parametrize("width", [80, 140])
def test_it_fits_a_screen(observed: Record, width: int) -> None:
    lines = screen(analyse(observed), width, ["profiles/a/profile.html"])
    assert len(lines) <= LINES
    assert max(line.cell_len for line in lines if not line.plain.startswith("   dynotune bench")) <= width
    text = "\n".join(line.plain for line in lines)
    assert "what would help" in text
    assert "attention" in text


def test_the_command_reads_a_record(observed: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(observed, analyse(observed), tmp_path / "first")
    record = tmp_path / "first" / "record.json.gz"
    assert run(["profile", "--record", str(record), "--out", str(tmp_path / "again"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["findings"]["rows"]
    assert (tmp_path / "again" / "profile.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--record", "r.gz", "--config", "x.yaml"], "both given"),
        (["--record", "nowhere.gz"], "cannot be read"),
        (["--record", "r.gz", "--memory_snapshot"], "holds no memory to look at"),
        (["--config", "x.yaml", "--go_on"], "there is none"),
        (["python", "x.py"], "stands behind `--`"),
        ([], "nothing to do"),
    ],
)
def test_what_cannot_be_asked_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_text_of_others_is_no_markup() -> None:
    from dynotune.profile.showing.markdown import markdown
    from dynotune.profile.showing.page import page
    from tests.profile.made import model, record

    found: Findings = analyse(record(model=model(name="<b>x</b>\x1b[31m|@you")))
    assert "<b>" not in page(found)
    assert "<b>" not in markdown(found)
    assert "\x1b" not in "\n".join(line.plain for line in screen(found, 80))


def test_the_run_says_where_it_is_stopped_and_not_where_its_plan_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made longer than any profile; a time left by that is weeks."""
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    console = Console(width=200, record=True, file=io.StringIO())
    observe(config(folder), Asked(4, warm_up=1), console)
    shown = console.export_text()
    assert re.search(r"step +4/8 ", shown), shown  # 1 of warm-up, 4 timed, 3 traced
    assert not re.search(r"1,?000,?00\d", shown)
    assert "plan: as many steps as are watched, of 2 examples (an epoch of 40, " in shown


def test_a_snapshot_that_a_cpu_cannot_give_is_said(observed: Record, tmp_path: Path) -> None:
    said: list[str] = []
    finish(observed, Options("x", out=tmp_path / "out", snapshot=True), said.append)
    assert said == ["no snapshot of memory was written: a run on a CPU has none"]
    said.clear()
    finish(observed, Options("x", out=tmp_path / "out"), said.append)
    assert said == [], "the control"


@pytest.mark.parametrize("peft", [True, False])
def test_traced_steps_take_the_heads_path_of_all_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, peft: bool
) -> None:
    """A range around the head once sent traced steps, and no others, through the module chunk by chunk: 12 % of a 0.5B's
    step stood in a table of a run that never did it."""
    from dynotune.model.head import head

    seen: list[str] = []

    def spied(name: str) -> None:
        own = getattr(head, name)

        def spy(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            return own(*args, **kwargs)

        monkeypatch.setattr(head, name, spy)

    spied("through_linear")
    spied("through_module")
    monkeypatch.setenv("DYNOTUNE_CACHE", str(folder / "cache"))
    observe(config(folder, use_peft=peft), Asked(4, ""), Console(quiet=True))
    assert "through_linear" in seen
    assert "through_module" not in seen
