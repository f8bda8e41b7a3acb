"""Promise: a bench's page stands alone, can be read by everybody, holds everything, and no speed that may not be shown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.bench.showing.page import bench_section
from dynotune.cli import run
from dynotune.results.history import History, write_result
from dynotune.results.result import Expectation, Noise, Result
from dynotune.show.colours import DARK, LIGHT, PAGE_DARK, PAGE_LIGHT
from dynotune.show.page import render
from dynotune.show.pictures import Span, bars, blocks, intervals, pairs
from tests.bench import made
from tests.bench.showing.test_terminal import NASTY, RATIO, nasty
from tests.report.html_pages import Page, require_alone, require_readable


def page(*results: Result) -> Page:
    return Page(render("dynotune report", [bench_section(one) for one in results]))


@pytest.mark.parametrize("make", made.EVERY.values(), ids=made.EVERY)
def test_every_kind_stands_alone_and_can_be_read(make: Callable[..., Result]) -> None:
    found = page(make())
    require_alone(found)
    require_readable(found)


def test_it_holds_everything() -> None:
    spoilt = made.arm("b.yaml", 15_000)
    first = spoilt.blocks[0].model_copy(update={"void": "the clocks were 5 % apart"})
    spoilt = spoilt.model_copy(update={"blocks": (first, *spoilt.blocks[1:])})
    result = made.ab(
        arms=(made.arm("a.yaml", 14_000), spoilt),
        notes=("b.yaml waits for the host",),
        schedule=("a.yaml", "b.yaml") * 8,
    )
    words = page(result).words
    for said in (
        "b.yaml trains 1.07x",
        "the clocks were 5 % apart",
        "b.yaml waits for the host",
        "gradient",
        "4e-7",
        "NVIDIA H200",
        "580.95.05",
        "dynotune bench --config a.yaml",
        "definitions",
        "640 of 8,000 examples",
        "NOT MET",
        "Blocks as they ran",
        "Peak memory",
        "No pair is left out",
    ):
        assert said in words, said
    ladder = page(made.ladder()).words
    assert "The ladder" in ladder
    both = page(made.attribute_on_a_ladder()).words
    assert "The ladder" in both
    assert "The ladder" not in page(made.attribute()).words
    assert "behavioural" in page(made.sweep()).words
    assert page(made.withdrawn()).words.count("WITHDRAWN on 2026-11-23") == 1


def test_what_is_not_comparable_has_no_speed_in_any_table_or_picture() -> None:
    result = made.not_comparable(expectations=(Expectation(text="speed>=1", observed="1.77x", met=True),))
    text = render("dynotune report", [bench_section(result)])
    words = Page(text).words
    assert "not comparable: label tokens: 812 against 790" in words
    assert not re.search(r"\d\.\d+x|[+-]\d[\d.]* % \[", words)
    rate = result.arms[1].per_second("tokens")
    assert rate is not None
    assert f"{rate:,.0f}" not in text
    assert f"{result.arms[1].blocks[0].seconds:.4g}" not in words
    assert "1.77" not in text
    assert RATIO.search(page(made.ab()).words)  # negative control
    assert f"{rate:,.0f}" in render("", [bench_section(made.ab())])


def test_a_host_on_which_an_arm_is_twice_as_far_from_itself_has_a_page_too() -> None:
    noise = Noise(log_ratios=(0.85, -0.4), floor=1.34)
    require_readable(page(made.ab(noise=noise)))


def test_text_of_others_stays_text() -> None:
    found = page(nasty())
    require_alone(found)
    require_readable(found)
    assert "<script>alert(1)</script>" in found.words
    plain = page(made.ab()).tags
    assert found.tags.keys() == plain.keys()
    assert "\x1b" not in found.words
    assert "\u202e" not in found.words


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=25, deadline=None)
def test_no_name_and_no_note_breaks_the_page(name: str, note: str) -> None:
    arms = (made.arm("a.yaml", 14_000), made.arm(name or "b", 15_000))
    one = made.compared(name or "b", "a.yaml", name, "whole", 1.07)
    found = page(made.ab(arms=arms, comparisons=(one,), parity=(), notes=(note,), command=note))
    require_alone(found)
    require_readable(found)


def test_no_secret_and_no_path_of_the_machine() -> None:
    config = {"hub_token": "hf_" + "a" * 34, "dataset_name": "/home/someone/rows.jsonl", "learning_rate": 1e-4}
    arms = (made.arm("a.yaml", 14_000, config=config), made.arm("b.yaml", 15_000, config=config, settings=config))
    text = render("", [bench_section(made.ab(arms=arms, command="dynotune bench --hub_token hf_" + "a" * 34))])
    assert "a" * 34 not in text
    assert "someone" not in text
    assert "rows.jsonl" in text


def test_a_long_result_is_bounded() -> None:
    many = tuple((f"change {i}", 1.1, 1.05, -0.5) for i in range(300))
    text = render("", [bench_section(made.attribute(many))])
    assert len(text) < 3_000_000
    require_readable(Page(text))


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 3)), min_size=1, max_size=5),
    st.floats(0, 5),
)
@settings(max_examples=50, deadline=None)
def test_every_mark_lies_in_the_picture(rows: list[tuple[float, float]], band: float) -> None:
    spans = [
        Span(f"row {i}", (middle / (1 + wide), middle, middle * (1 + wide)), "good")
        for i, (middle, wide) in enumerate(rows)
    ]
    drawn = (
        intervals(spans, "x", band),
        pairs([(f"row {i}", [wide, -wide, 0.0]) for i, (_, wide) in enumerate(rows)], "x", band),
        blocks([], [], "x"),
        bars([], "x", "GiB"),
    )
    for svg in drawn:
        for value in re.findall(r'\b(?:cx|x1|x2)="([^"]+)"', svg):
            assert -1 <= float(value) <= 861


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("page_colours", "series"), [(PAGE_LIGHT, LIGHT), (PAGE_DARK, DARK)], ids=["light", "dark"])
def test_colours_are_legible(page_colours: dict[str, str], series: tuple[str, ...]) -> None:
    for use in ("text", "quiet", "good", "bad", "doubt"):
        assert contrast(page_colours[use], page_colours["page"]) >= 4.5, use
        assert contrast(page_colours[use], page_colours["ground"]) >= 4.5 or use != "text"
    assert all(contrast(colour, page_colours["page"]) >= 3 for colour in series)
    assert contrast("#777777", "#ffffff") < 4.5  # negative control


class TestCommand:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)

    def test_a_result_by_file_and_by_name(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_result(made.ab(), tmp_path / "one.json")
        assert run(["report", "one.json"]) == 0
        assert capsys.readouterr().out == "written: one.html\n"
        kept, _ = History().keep(made.sweep())
        assert run(["report", kept.name]) == 0
        assert (tmp_path / f"{kept.name}.html").is_file()

    def test_several_side_by_side_with_what_changed(self, tmp_path: Path) -> None:
        write_result(made.ab(), tmp_path / "one.json")
        write_result(made.ab(name="second"), tmp_path / "two.json")
        assert run(["report", "one.json", "two.json"]) == 0
        found = Page((tmp_path / "report.html").read_text())
        require_alone(found)
        assert found.tags["section"] == 2
        assert "results beside one another" in found.words
        assert "2: second" in found.words  # the legend, and the section below it
        assert "2. ab: second" in found.words
        assert run(["report", "one.json", "two.json"]) == 2  # nothing is replaced that was not named
        write_result(made.ab(definitions=99), tmp_path / "other.json")
        assert run(["report", "one.json", "other.json", "--output", "mixed.html"]) == 0
        words = Page((tmp_path / "mixed.html").read_text()).words
        assert "different definitions" in words
        assert "results beside one another" not in words

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1, 2]", b"[" * 100_000])
    def test_what_is_no_result(self, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "x.json").write_bytes(content)
        assert run(["report", "x.json"]) == 2
        assert "no result of `dynotune bench`" in capsys.readouterr().err
        assert not (tmp_path / "x.html").exists()

    def test_the_folder_of_a_bench_is_its_result(self, tmp_path: Path) -> None:
        """`dynotune bench` names the folder that it wrote."""
        write_result(made.ab(), tmp_path / "bench.json")
        assert run(["report", str(tmp_path)]) == 0
        assert (tmp_path / "report.html").is_file()

    def test_wrong_names_and_places(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["report"]) == 2
        assert run(["report", str(tmp_path)]) == 2
        assert "is no run folder" in capsys.readouterr().err
        assert run(["report", NASTY]) == 2
        assert "\x1b" not in capsys.readouterr().err
        write_result(made.ab(), tmp_path / "one.json")
        assert run(["report", "one.json", "--output", str(tmp_path / "no" / "folder.html")]) == 2
