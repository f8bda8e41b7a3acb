"""Promise: the command says what is wrong with what it is given, exits as documented, and starts without PyTorch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.cli import run
from tests.audit.made_up import audited, write

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\noptim: adamw_torch\n"
CLEAN = SFT.replace("adamw_torch", "adamw_torch_fused")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, {"sft.yaml": SFT, "clean.yaml": CLEAN, "broken.yaml": "a: [1\n"})


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--config", "sft.yaml", "--select", "OPT001"], 1),
        (["--config", "sft.yaml", "--select", "OPT001", "--level", "warning"], 0),
        (["--config", "clean.yaml", "--select", "OPT001"], 0),
        (["--config", "broken.yaml", "--select", "OPT001"], 2),
        (["--config", "clean.yaml", "broken.yaml", "--select", "OPT001"], 2),
        (["--config", "none.yaml"], 2),
        (["--config", "sft.yaml", "--select", "NIX"], 2),
        (["--config", "sft.yaml", "--output", "pdf=a.pdf"], 2),
        (["--config", "sft.yaml", "--source", "trl=none"], 2),
        (["sft.yaml"], 2),
    ],
)
def test_exit_codes(here: Path, words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *words]) == code
    said = capsys.readouterr()
    assert "Checked" in said.out or "error:" in said.err


@pytest.mark.parametrize(
    "words", [["--project", "empty"], ["--project", "unread"], ["--project", "sft.yaml"], ["--script", "unread/a.py"]]
)
def test_nothing_checked_is_no_success(here: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"empty/notes.txt": "", "unread/a.py": "def f(:\n", "unread/b.yaml": "a: [1\n"})
    assert run(["audit", *words]) == 2
    said = capsys.readouterr()
    assert "nothing found" not in said.out
    assert "nothing here asks for one" not in said.out
    assert "nothing was checked" in said.out or "takes a folder" in said.err


def test_a_named_file_beside_a_project_is_read_or_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(here, {"part/clean.yaml": CLEAN})
    words = ["audit", "--project", "part", "--select", "OPT001", "--config"]
    assert run([*words, "sft.yaml"]) == 2
    assert "outside of the project" in " ".join(capsys.readouterr().out.split())
    assert run([*words, "part/clean.yaml"]) == 0
    (here / "part" / "linked.yaml").symlink_to(here / "sft.yaml")
    assert run([*words, "part/clean.yaml"]) == 0
    assert run([*words, "part/linked.yaml"]) == 1


def test_outputs_are_written_and_json_is_one_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["json=a.json", "sarif=a.sarif", "markdown=a.md", "html=a.html"]
    words = ["audit", "--config", "sft.yaml", "--select", "OPT001", "--json"]
    for file in files:
        words += ["--output", file]
    assert run(words) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((here / "a.json").read_text())
    (fix,) = json.loads((here / "a.sarif").read_text())["runs"][0]["results"][0]["fixes"]
    (one,) = fix["artifactChanges"][0]["replacements"]
    assert one["insertedContent"]["text"] == "_fused"
    assert "OPT001" in (here / "a.md").read_text()
    assert "OPT001" in (here / "a.html").read_text()


def test_nothing_but_an_earlier_output_of_its_kind_is_written_over(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "--config", "sft.yaml", "--select", "OPT001"]
    write(here, {"notes.md": "mine", "empty.json": "", "data.json": "[1]"})
    kinds = ("json", "sarif", "markdown", "html")
    for _ in range(2):
        for kind in kinds:
            assert run([*words, "--output", f"{kind}=out.{kind}"]) == 1
        assert run([*words, "--output", "json=empty.json"]) == 1
        assert run([*words, "--write_baseline", "known.json"]) == 0
    refused = [f"{kind}=out.{other}" for kind in kinds for other in kinds if kind != other]
    refused += ["markdown=notes.md", "json=data.json", "json=known.json", "html=sft.yaml", "json=clean.yaml", "json=."]
    for one in refused:
        before = {path: path.read_bytes() for path in here.iterdir()}
        assert run([*words, "--output", one]) == 2
        assert {path: path.read_bytes() for path in here.iterdir()} == before
    assert run([*words, "--output", "json=new.json", "sarif=new.json"]) == 2
    assert run([*words, "--write_baseline", "data.json"]) == 2
    assert run([*words, "--write_baseline", "sft.yaml"]) == 2
    assert "is audited" in capsys.readouterr().err


def test_an_output_that_fails_does_not_lose_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--config", "sft.yaml", "--select", "OPT001", "--output", "json=none/a.json", "sarif=a.sarif"]
    assert run(words) == 2
    assert (here / "a.sarif").exists()
    assert "none/a.json cannot be written" in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_a_name_that_is_not_utf_8_is_in_every_output(here: Path) -> None:
    folder = here / "odd"
    folder.mkdir()
    (folder / os.fsdecode(b"sft\xff.yaml")).write_text(SFT)
    words = ["audit", "--project", "odd", "--select", "OPT001"]
    for kind in ("json", "sarif", "markdown", "html"):
        words += ["--output", f"{kind}=a.{kind}"]
    assert run(words) == 1
    (found,) = json.loads((here / "a.sarif").read_text())["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "sft%FF.yaml"


@pytest.mark.parametrize(
    ("source", "says"), [("tlr=trl-main", "not known here"), ("axolotl=trl-main", "does not hold the package axolotl")]
)
def test_a_source_that_is_none_is_refused(
    here: Path, source: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, {"trl-main/trl/__init__.py": ""})
    assert run(["audit", "--config", "clean.yaml", "--source", source]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert run(["audit", "--config", "clean.yaml", "--select", "OPT001", "--source", "trl=trl-main"]) == 0
    assert run(["audit", "--config", "clean.yaml", "--select", "OPT001", "--source", "trl=trl-main/trl"]) == 0


def test_with_a_baseline_only_new_findings_fail(here: Path) -> None:
    words = ["audit", "--config", "sft.yaml", "--select", "OPT"]
    assert run([*words, "--write_baseline", "known.json"]) == 0
    assert run([*words, "--baseline", "known.json"]) == 0
    write(here, {"sft.yaml": f"# moved\n\n{SFT}"})
    assert run([*words, "--baseline", "known.json"]) == 0
    write(here, {"sft.yaml": SFT.replace("adamw_torch", "adamw_hf")})
    assert run([*words, "--baseline", "known.json"]) == 1


def test_a_baseline_serves_however_the_project_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, {"sub/deep/sft.yaml": SFT})
    select = ["--select", "OPT001"]
    assert run(["audit", "--project", "sub", *select, "--write_baseline", "known.json"]) == 0
    assert "sub/deep/sft.yaml" in (here / "known.json").read_text()
    for words in (["--config", "sub/deep/sft.yaml"], ["--project", str(here / "sub" / "deep")]):
        assert run(["audit", *words, *select]) == 1
        assert run(["audit", *words, *select, "--baseline", "known.json"]) == 0
    assert run(["audit", "--config", "sft.yaml", *select, "--baseline", "known.json"]) == 1
    monkeypatch.chdir(here / "sub")
    assert run(["audit", "--project", ".", *select, "--baseline", "../known.json"]) == 0


def test_a_script_may_be_named_by_its_whole_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Imports are looked for in folders above it, up to the root of the file system, and no further."""
    write(
        here,
        {"deep/train.py": "from trl import SFTConfig\nimport other\nother.thing()\nSFTConfig(optim='adamw_torch')\n"},
    )
    assert run(["audit", "--script", str(here / "deep" / "train.py"), "--select", "OPT001"]) == 1
    assert "deep/train.py:4" in capsys.readouterr().out
    from dynotune.audit.read.python import read_script

    path = here / "deep" / "train.py"
    assert read_script(path, path.read_text(), Path()).calls


def test_pytorch_is_not_loaded(here: Path) -> None:
    code = (
        "import sys; from dynotune.cli import run; run(['rule']); run(['audit', '--config', 'sft.yaml']);"
        "sys.exit(sorted({'torch', 'transformers', 'libcst'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_data_is_read_with_the_masks_of_the_job_that_names_it(tmp_path: Path) -> None:
    """Of several jobs the one that names the file; where these disagree it is said, and nothing is claimed of masks."""
    rows = '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "b"}]}\n'
    text = "".join(rows % ("a word " * 100 + str(number)) for number in range(4))
    sft = "model_name_or_path: a/b\ndataset_name: {}\nmax_length: 512\nassistant_only_loss: {}\n"
    files = {"mine.jsonl": text, "a.yaml": sft.format("mine.jsonl", "true"), "b.yaml": sft.format("x/y", "false")}
    result = audited(tmp_path / "one", files, data=[tmp_path / "one" / "mine.jsonl"])
    assert max(result.project.data[0].label_tokens) < 100 < max(result.project.data[0].lengths)
    assert not result.project.not_read
    files["b.yaml"] = sft.format("mine.jsonl", "false")
    result = audited(tmp_path / "two", files, data=[tmp_path / "two" / "mine.jsonl"])
    (unread,) = result.project.not_read
    assert "2 jobs train on it with different masks" in unread.why
    files["a.yaml"] = files["b.yaml"] = sft.format("x/y", "false")
    result = audited(tmp_path / "none", files, data=[tmp_path / "none" / "mine.jsonl"])
    (unread,) = result.project.not_read
    assert "none of 2 jobs names it" in unread.why
