"""Promise: the table says of each speed-up what was asked, what became of it, what was seen and its gain."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dynotune.cli import run as run_command
from dynotune.errors import ConfigError
from dynotune.measure.evidence import Evidence, Phase, Seen, Source
from dynotune.speedups.choose import Decision
from dynotune.speedups.contract import Installation, Kind, No
from dynotune.speedups.expectation import Absent, Expected, Holds, Observation, Verdict
from dynotune.speedups.machine import Machine
from dynotune.speedups.record import MOST_KERNELS, NAME, Record
from dynotune.speedups.remembered import Remembered, machines_folder
from dynotune.speedups.table import NOT_MEASURED, Effect, Row, State, markdown, planned_rows, proved_rows, show
from dynotune.speedups.whole_step import PRODUCTS, WAITS, Presence, Unwanted
from tests.speedups.toys import Toy

MACHINE = Machine("NVIDIA H200", "9.0", "580.95.05", "13.0", "2.11.0", "3.6.0", "3.12.3", "0.1.0")
LAYERS = tuple(f"model.layers.{i}" for i in range(28))


def stands(name: str, **toy: Any) -> Decision:
    """One that is installed at every layer."""
    return Decision(Toy(name, **toy), "auto", "", installed=Installation(lambda: None, places=LAYERS))


def left_out(name: str, no: No, setting: Any = "auto", asked_by: str = "") -> Decision:
    return Decision(Toy(name), setting, asked_by, no=no)


WHOLE = Observation(Verdict.ENGAGED, 28, 28, "norm_fwd x 28: 3.1 % of the device's time")
LACKING = Observation(
    Verdict.PARTIAL, 27, 28, "norm_fwd x 27", ("model.layers.27 (backward)",), ("dense mask: [1, 1, 64, 64]",)
)
NOT = Observation(Verdict.NOT_ENGAGED, 0, 28, "nothing was seen of norm kernel", LAYERS)

DECISIONS = [
    stands("norm_kernel"),
    stands("other_kernel", kind=Kind.BEHAVIOURAL),
    left_out("fast_attention", No("flash-attn 3 is not installed", "install it")),
    left_out("graphs", No("there is no GPU", expected=True)),
    left_out("prefetching", No("it is off", expected=True), "off", "speedups: {prefetching: off}"),
    left_out("rotary_toy", No("it was not seen to run in step 2")),
]
SEEN = {"norm_kernel": WHOLE, "other_kernel": LACKING, "rotary_toy": NOT}


READ = {"name": "cudaStreamSynchronize", "shape": [], "phase": "forward", "place": "layers.3", "count": 4}
CLEAN = (Unwanted(PRODUCTS, Presence.ABSENT), Unwanted(WAITS, Presence.ABSENT))
WAITED = (Unwanted(PRODUCTS, Presence.UNKNOWN, why="no types"), Unwanted(WAITS, Presence.FOUND, 4, (READ,)))


def printed(rows: list[Row], width: int, unwanted: tuple[Unwanted, ...] = ()) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show(rows, console, unwanted)
    return console.export_text()


def test_before_the_proof_it_says_what_is_chosen_and_why_the_rest_is_not() -> None:
    rows = {row.name: row for row in planned_rows(DECISIONS)}
    assert (rows["norm_kernel"].state, rows["norm_kernel"].count) == (State.CHOSEN, "chosen, 28 places")
    assert rows["fast_attention"].state is State.LEFT_OUT
    assert rows["fast_attention"].details == ["flash-attn 3 is not installed", "to have it: install it"]
    assert rows["norm_kernel"].gain == NOT_MEASURED


def test_behind_the_proof_it_says_n_of_n_and_names_what_is_missing() -> None:
    rows = {row.name: row for row in proved_rows(DECISIONS, SEEN)}
    assert rows["norm_kernel"].count == "28 of 28"
    assert rows["other_kernel"].count == "27 of 28, partial"
    assert "missing at model.layers.27 (backward)" in rows["other_kernel"].details
    assert "against it: dense mask: [1, 1, 64, 64]" in rows["other_kernel"].details
    assert rows["rotary_toy"].state is State.TAKEN_OUT
    assert "and 20 more" in " ".join(rows["rotary_toy"].details)
    assert [row.name for row in rows.values() if row.is_open] == ["other_kernel", "rotary_toy"]


@pytest.mark.parametrize(
    ("effect", "kind", "said"),
    [
        (None, Kind.EXACT, NOT_MEASURED),
        (Effect(1.25, 1.2, 1.3, "b"), Kind.EXACT, "+25 % [20, 30]"),
        (Effect(1.01, 0.98, 1.04, "b"), Kind.EXACT, "no measured effect (+1 % [-2, 4])"),
        (Effect(1.062, 1.058, 1.066, "b", "2026-11-22T09:30"), Kind.EXACT, "+6.2 % [5.8, 6.6], 2026-11-22"),
        (Effect(0.9, 0.85, 0.95, "b"), Kind.EXACT, "slower: -10 % [-15, -5]"),
        (Effect(1.25, 1.2, 1.3, "b"), Kind.BEHAVIOURAL, "+25 % [20, 30], behavioural"),
    ],
)
def test_a_gain_is_quoted_as_it_was_measured_here_with_its_kind(effect: Effect | None, kind: Kind, said: str) -> None:
    [row] = planned_rows([stands("toy", kind=kind)], lambda name: effect)
    assert row.gain == said


@pytest.mark.parametrize("width", [80, 100, 119, 120, 160, 200])
def test_it_fits_a_terminal_and_says_everything_there(width: int) -> None:
    rows = proved_rows(DECISIONS, SEEN, {"norm_kernel": Effect(1.25, 1.2, 1.3, "b")}.get)
    text = printed(rows, width, WAITED)
    assert max(len(line) for line in text.splitlines()) <= width
    words = " ".join(text.split())
    for said in (
        PRODUCTS,
        "no types",
        "4 found",
        "cudaStreamSynchronize",
        "norm_kernel",
        "28 of 28",
        "taken out",
        "behavioural",
        "+25 %",
        "not measured here",
        "left out",
    ):
        assert said in words, said
    assert "not taken: graphs (there is no GPU)" in words
    assert "not taken: prefetching (`speedups: {prefetching: off}`)" in words


def test_where_nothing_surprises_there_is_no_empty_table() -> None:
    assert "speed-up" not in printed(planned_rows(DECISIONS[3:5]), 80)


def test_markdown_has_every_row_and_stays_a_table() -> None:
    odd = left_out("odd", No("a | b\n\x1b[31m"))
    text = markdown(proved_rows([*DECISIONS, odd], SEEN), WAITED)
    lines = text.splitlines()
    assert len(lines) == 2 + len(DECISIONS) + 1 + len(WAITED)
    assert lines[-1] == f"| {WAITS} |  | absent | 4 found | cudaStreamSynchronize (forward, layers.3) x 4 |  |"
    assert "\x1b" not in text
    assert all(line.replace("\\|", "").count("|") == 7 for line in lines)


def kernel(name: str, microseconds: float = 1.0, phase: Phase = Phase.FORWARD, source: Source = Source.KERNEL) -> Seen:
    return Seen(name, source, phase, microseconds=microseconds)


def record(
    facts: dict[str, Any] | None = None,
    seen: tuple[Seen, ...] = (kernel("norm_fwd"),),
    unwanted: tuple[Unwanted, ...] = CLEAN,
) -> Record:
    expectations = {
        "norm_kernel": [Expected("norm kernel", Phase.FORWARD, ("norm_fwd",), at=LAYERS)],
        "other_kernel": [Absent("dense mask", lambda evidence: None), Holds("few passes", lambda evidence: True)],
    }
    evidence = Evidence(2, "cuda", True, seen, 1, facts=facts or {}, seconds=0.5)
    return Record.of(DECISIONS, SEEN, expectations, evidence, MACHINE, unwanted=unwanted)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    import torch

    facts = {"documents": 8, "waits": math.nan, "tensor": torch.tensor(3), "set": {2, 1}, "none": None}
    one = record(facts, unwanted=WAITED)
    (tmp_path / NAME).write_text(json.dumps(one.to_json(), allow_nan=False))
    for place in (tmp_path, tmp_path / NAME):
        assert Record.read(place).rows == one.rows
        assert Record.read(place).unwanted == WAITED
    read = Record.read(tmp_path)
    assert read.facts == {"documents": 8, "waits": "nan", "tensor": 3, "set": [1, 2], "none": None}
    assert json.dumps(read.to_json()) == json.dumps(one.to_json())
    assert str(read.machine) == "NVIDIA H200, driver 580.95.05, CUDA 13.0, torch 2.11.0, Triton 3.6.0"
    assert read.summary().endswith("1 engaged, other_kernel 27 of 28, partial, rotary_toy taken out")


def test_kernels_of_one_name_are_added_up_and_the_longest_come_first() -> None:
    one = record(
        seen=(*(kernel(f"k{i}", i) for i in range(60)), kernel("k5", 100), kernel("op", 1e6, source=Source.OPERATOR))
    )
    assert len(one.kernels) == MOST_KERNELS
    first = one.kernels[0]
    assert (first["name"], first["count"], first["microseconds"]) == ("k5", 2, 105.0)
    assert first["share"] == pytest.approx(105 / (sum(range(60)) + 100), abs=1e-4)


@given(st.data())
def test_a_damaged_file_is_an_error_and_never_a_table(data: st.DataObject) -> None:
    text = json.dumps(record().to_json())
    body = json.loads(text)
    how = data.draw(st.sampled_from(["cut", "drop", "type", "row"]))
    if how == "cut":
        text = text[: data.draw(st.integers(0, len(text) - 1))]
    elif how == "drop":
        del body[data.draw(st.sampled_from(sorted(body)))]
        text = json.dumps(body)
    elif how == "type":
        key = data.draw(st.sampled_from(["format", "step", "seconds", "rows", "machine", "kernels", "unwanted"]))
        text = json.dumps({**body, key: "seven"})
    else:
        key = data.draw(st.sampled_from(sorted(body["rows"][0])))
        body["rows"][0][key] = data.draw(st.sampled_from([7, {"a": 1}, "\x00"] if key != "seen" else [{}, "x"]))
        text = json.dumps(body)
    if how == "row":
        try:
            rows = Record.from_json(json.loads(text)).rows
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        printed(list(rows), 80)  # whatever is taken can be shown
    else:
        with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
            Record.from_json(json.loads(text))


def test_the_command_shows_a_run_and_its_exit_code_says_whether_all_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_text(json.dumps(record().to_json()))
    assert run_command(["engaged", str(tmp_path)]) == 3
    shown = capsys.readouterr().out
    assert "norm_kernel" in shown
    assert "step 2 was traced on NVIDIA H200" in shown
    good = dataclasses.replace(record(), rows=tuple(row for row in record().rows if not row.is_open))
    (tmp_path / NAME).write_text(json.dumps(good.to_json()))
    assert run_command(["engaged", str(tmp_path), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == good.to_json() | {"rows": body["rows"], "kernels": body["kernels"]}
    assert run_command(["engaged", str(tmp_path), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| speed-up |")


def test_a_step_that_holds_what_it_should_not_is_not_proved(tmp_path: Path) -> None:
    good = dataclasses.replace(record(), rows=tuple(row for row in record().rows if not row.is_open))
    for unwanted, proved in ((CLEAN, True), (WAITED[:1], False), (WAITED[1:], False)):
        one = dataclasses.replace(good, unwanted=unwanted)
        (tmp_path / NAME).write_text(json.dumps(one.to_json()))
        assert Record.read(tmp_path).is_proved is proved
        assert run_command(["engaged", str(tmp_path)]) == (0 if proved else 3)


def test_a_file_of_before_steps_were_judged_as_a_whole_is_read() -> None:
    body = record().to_json()
    del body["unwanted"]
    assert Record.from_json({**body, "format": 1}).unwanted == ()
    with pytest.raises(KeyError):
        Record.from_json(body)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "ended before a step was traced"),
        (b"{", "damaged"),
        (b'{"format": 9}', "format 9"),
        (b"\xff\x00", "damaged"),
    ],
)
def test_the_command_says_why_there_is_nothing_to_show(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / NAME).write_bytes(content)
    assert run_command(["engaged", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match="Name a run folder"):
        Record.read(tmp_path / "nowhere")


def test_forgetting_by_name_and_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path))
    for name in ("fused_lora", "prefetch"):
        Remembered(MACHINE, machines_folder(), lambda text: None).keep_failure(name, "nothing of it was seen")
    assert run_command(["engaged", "--forget", "fused_lora"]) == 0
    told = capsys.readouterr().out
    assert "fused_lora" in told
    assert "NVIDIA H200" in told
    assert "prefetch" not in told
    assert run_command(["engaged", "--forget", "--json"]) == 0
    assert "prefetch" in json.loads(capsys.readouterr().out)["forgotten"][0]
    assert run_command(["engaged", "--forget"]) == 0
    assert capsys.readouterr().out == "nothing was remembered\n"
    assert run_command(["engaged", "--forget", "flash-attn 3"]) == 0, "a package is a name, too"
    assert run_command(["engaged", "--forget", "fused_lore"]) == 2
    assert "fused_lora" in capsys.readouterr().err
    assert run_command(["engaged", "run", "--forget"]) == 2
