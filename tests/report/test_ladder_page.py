"""Promise: the README's ladder is what the committed result says, and shows no figure of what may not be compared."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks.ladder_page import BEGIN, END, main, picture, table
from benchmarks.pages import ROOT

from dynotune.errors import DataError
from tests.bench import made


def page(folder: Path) -> Path:
    path = folder / "README.md"
    path.write_text(f"# A\n\n{BEGIN}\n{END}\n\nB\n")
    return path


def args(folder: Path, *more: str) -> list[str]:
    return ["--results", str(folder), "--page", str(folder / "README.md"), *more]


def test_picture_and_table_are_made_from_the_result_alone(tmp_path: Path) -> None:
    path, result = page(tmp_path), made.ladder()
    (tmp_path / "case_ladder_h200.json").write_text(result.model_dump_json())
    assert main(args(tmp_path, "--check")) == 1
    assert not (tmp_path / "case_ladder_h200.svg").exists()  # `--check` writes nothing
    assert main(args(tmp_path)) == 0
    text = path.read_text()
    assert text.startswith("# A\n")
    assert text.endswith("\nB\n")
    for arm in result.arms:
        assert f"| {arm.name} | " in text
    assert "case_ladder_h200.svg" in text
    assert "DPO" not in text
    assert main(args(tmp_path, "--check")) == 0
    path.write_text(text.replace("real tokens/s", "tokens/s"))
    assert main(args(tmp_path, "--check")) == 1  # negative control: a change by hand is found


def test_the_picture_stands_by_itself() -> None:
    drawn = picture(made.ladder())
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme:dark" in drawn
    assert "<script" not in drawn
    used = {name for name in ("--c0", "--text", "--rule") if f"var({name})" in drawn}
    assert used
    assert all(f"{name}:#" in drawn for name in used)
    assert drawn.count('class="f0"') == len(made.ladder().arms)


def test_an_arm_that_failed_has_no_figure() -> None:
    whole = made.ladder()
    gone = whole.arms[1].model_copy(update={"failed": "out of memory at 32,768 tokens"})
    result = whole.model_copy(update={"arms": (whole.arms[0], gone, *whole.arms[2:])})
    row = next(line for line in table(result).splitlines() if line.startswith(f"| {gone.name} |"))
    assert row == f"| {gone.name} | out of memory at 32,768 tokens |  |  |  |  |  |"
    assert picture(result).count('class="f0"') == len(whole.arms) - 1


def test_what_is_no_ladder_is_refused(tmp_path: Path) -> None:
    page(tmp_path)
    with pytest.raises(DataError, match="no ladder was measured"):
        main(args(tmp_path))
    (tmp_path / "case_ladder_dpo_h200.json").write_text(made.sweep().model_dump_json())
    with pytest.raises(DataError, match="kind sweep"):
        main(args(tmp_path))
    (tmp_path / "case_ladder_dpo_h200.json").write_text(made.ladder().model_dump_json())
    (tmp_path / "README.md").write_text("no marks")
    with pytest.raises(DataError, match="once each"):
        main(args(tmp_path))


@pytest.mark.skipif(BEGIN not in (ROOT / "README.md").read_text(), reason="the README has no ladder yet")
def test_the_readme_is_what_the_results_say() -> None:
    assert main(["--check"]) == 0
