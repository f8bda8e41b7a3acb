"""Promise: `--fix` applies what is safe and nothing else, whole or not at all, and says what is clean afterwards."""

import io
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Finding, Risk
from dynotune.audit.fix.apply import proposed, write
from dynotune.audit.fix.command import apply, for_sarif, propose
from dynotune.audit.fix.splice import NotAppliedError, between, spliced
from dynotune.audit.place import Place
from dynotune.audit.run import Request, audit
from dynotune.cli import run
from tests.audit.made_up import a_finding
from tests.audit.made_up import write as write_files
from tests.audit.show import made

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\noptim: adamw_torch  # as in the paper\n"
SCRIPT = """from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="x", optim="adamw_torch")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args).train()
"""


def finding(name: str, value: object, file: str = "a.yaml", risk: Risk = Risk.SAFE, key: str | None = None) -> Finding:
    place = Place(file, 1, key=name if key is None else key)
    return a_finding(place=place, risk=risk, changes=(Change(Edit.SET, place, name, value),))


def project(folder: Path, **files: str) -> Project:
    named = {name.replace("__", "."): text for name, text in files.items()}
    write_files(folder, named)
    return Project(str(folder), texts=named)


def test_several_findings_of_one_file_go_together(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\nb: 2\n")
    proposal = proposed(of, [finding("a", 5), finding("c", 6, key=""), finding("d", 7, key="")])
    assert proposal.after == {"a.yaml": "a: 5\nb: 2\nc: 6\nd: 7\n"}
    assert "-a: 1\n+a: 5\n" in proposal.diff()
    assert write(of, proposal) == (["a.yaml"], [])
    assert (tmp_path / "a.yaml").read_text() == "a: 5\nb: 2\nc: 6\nd: 7\n"


def test_what_contradicts_or_cannot_be_edited_is_left_with_the_reason(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n", b__toml="a = 1\n", c__json="{}")
    two = [finding("a", 1, "c.json", key=""), finding("b", 2, "c.json", key="")]
    proposal = proposed(of, [finding("a", 5), finding("a", 6), finding("a", 2, "b.toml"), *two])
    assert len(proposal.findings) == 2
    assert proposal.after == {"a.yaml": "a: 5\n", "c.json": '{"a": 1}'}
    assert len(proposal.left) == 3


def test_a_file_that_changed_meanwhile_stays(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    proposal = proposed(of, [finding("a", 5)])
    (tmp_path / "a.yaml").write_text("a: 1\nnew: 1\n")
    written, (refused,) = write(of, proposal)
    assert not written
    assert "has changed since" in refused
    assert (tmp_path / "a.yaml").read_text() == "a: 1\nnew: 1\n"


def test_a_file_that_cannot_be_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    proposal = proposed(of, [finding("a", 5)])
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    written, (refused,) = write(of, proposal)
    assert (written, "cannot be written" in refused) == ([], True)
    assert [one.name for one in tmp_path.iterdir()] == ["a.yaml"]


def test_permissions_links_and_the_mark_of_utf_8_stay(tmp_path: Path) -> None:
    of = project(tmp_path, real__sh="run --a 1\n")
    (tmp_path / "real.sh").write_bytes(b"\xef\xbb\xbfrun --a 1\n")
    (tmp_path / "real.sh").chmod(0o750)
    (tmp_path / "a.sh").symlink_to("real.sh")
    of = Project(of.root, texts={"a.sh": "run --a 1\n"})
    assert write(of, proposed(of, [finding("a", 2, "a.sh")])) == (["a.sh"], [])
    assert (tmp_path / "a.sh").is_symlink()
    assert (tmp_path / "real.sh").read_bytes() == b"\xef\xbb\xbfrun --a 2\n"
    assert stat.S_IMODE((tmp_path / "real.sh").stat().st_mode) == 0o750


def test_a_link_out_of_the_project_is_not_written_through_but_where_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("a: 1\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.yaml").symlink_to(tmp_path / "outside.yaml")
    of = Project(str(tmp_path / "here"), texts={"a.yaml": "a: 1\n"})
    written, (refused,) = write(of, proposed(of, [finding("a", 2)]))
    assert (written, (tmp_path / "outside.yaml").read_text()) == ([], "a: 1\n")
    assert "outside of the project" in refused
    assert write(of, proposed(of, [finding("a", 2)]), ["a.yaml"]) == (["a.yaml"], [])
    assert (tmp_path / "outside.yaml").read_text() == "a: 2\n"
    assert (tmp_path / "here" / "a.yaml").is_symlink()


def test_a_file_without_a_bit_to_write_stays_also_for_root(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    (tmp_path / "a.yaml").chmod(0o444)
    written, (refused,) = write(of, proposed(of, [finding("a", 5)]))
    assert (written, "permissions" in refused) == ([], True)


def test_a_file_with_several_names_stays(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    os.link(tmp_path / "a.yaml", tmp_path / "b.yaml")
    written, (refused,) = write(of, proposed(of, [finding("a", 5)]))
    assert (written, "hard links" in refused) == ([], True)
    assert (tmp_path / "a.yaml").read_text() == "a: 1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    os.chown(tmp_path / "a.yaml", 1234, 1235)
    assert write(of, proposed(of, [finding("a", 5)])) == (["a.yaml"], [])
    held = (tmp_path / "a.yaml").stat()
    assert (held.st_uid, held.st_gid) == (1234, 1235)


def test_utf_16_is_not_promised(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\n")
    (tmp_path / "a.yaml").write_bytes("a: 1\n".encode("utf-16"))
    proposal = proposed(of, [finding("a", 5)])
    assert not proposal.after
    assert "UTF-16" in proposal.left[0][1]


def test_only_safe_ones_without_asking_and_numeric_ones_when_told_yes(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\nb: 1\nc: 1\n")
    found = [finding("a", 2), finding("b", 2, risk=Risk.NUMERIC), finding("c", 2, risk=Risk.BEHAVIOURAL)]
    result = made.result(*found, project=of)
    said: list[str] = []
    assert propose(result, ask=None, say=said.append).after == {"a.yaml": "a: 2\nb: 1\nc: 1\n"}
    assert propose(result, ask=lambda _: True, say=said.append).after == {"a.yaml": "a: 2\nb: 2\nc: 1\n"}
    assert propose(result, ask=lambda _: False, say=said.append).after == {"a.yaml": "a: 2\nb: 1\nc: 1\n"}


def test_sarif_gets_the_lines_of_safe_changes(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="a: 1\nb: 1\n")
    fixes = for_sarif(made.result(project=of))
    assert fixes(finding("b", 2)) == {"a.yaml": [(2, 4, 2, 5, "2")]}
    assert fixes(finding("b", 2, risk=Risk.BEHAVIOURAL)) == {}


def test_no_fix_is_offered_that_holds_a_secret_and_no_difference_shows_one(tmp_path: Path) -> None:
    of = project(tmp_path, a__yaml="hub_tokn: KEYSECRET1\nb: 1\nwandb_api_keyy: KEYSECRET2\n")
    fixes = for_sarif(made.result(project=of))
    assert fixes(finding("b", "KEYSECRET1")) == {}
    assert "SECRET" not in str(fixes(finding("b", 2)))
    diff = proposed(of, [finding("b", 2)]).diff()
    assert "+b: 2" in diff
    assert "SECRET" not in diff


def test_lines_of_sarif_are_those_of_editors(tmp_path: Path) -> None:
    of = project(tmp_path, a__json='{"x": "\u2028\x85",\n "b": 1}')
    assert for_sarif(made.result(project=of))(finding("b", 2, "a.json")) == {"a.json": [(2, 7, 2, 8, "2")]}
    assert proposed(of, [finding("b", 2, "a.json")]).diff().startswith("--- a/a.json\n+++ b/a.json\n@@ -1,2 +1,2 @@\n")


def test_splices() -> None:
    text = "one two three"
    first, second = between(text, "one 2 three"), between(text, "1 two three")
    assert spliced(text, [first, second, first]) == "1 2 three"
    with pytest.raises(NotAppliedError):
        spliced(text, [between(text, "one three"), first])


class TestCommand:
    def test_fix_shows_the_diff_keeps_the_comment_and_is_clean(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write_files(tmp_path, {"sft.yaml": SFT}) / "sft.yaml"
        words = ["audit", "--config", str(path), "--select", "OPT001"]
        assert run(words) == 1
        assert run([*words, "--diff"]) == 1
        assert path.read_text() == SFT
        assert run([*words, "--fix"]) == 0
        assert path.read_text() == SFT.replace("adamw_torch ", "adamw_torch_fused ")
        out = capsys.readouterr().out
        assert "-optim: adamw_torch  # as in the paper\n+optim: adamw_torch_fused  # as in the paper\n" in out
        assert "OPT001" in out
        assert "clean now" in out
        assert "Keep as is: 1 check passed." in out

    @pytest.mark.parametrize(
        "content",
        [
            SCRIPT.encode().replace(b"\n", b"\r\n"),
            b"# -*- coding: latin-1 -*-\n# \xe9\n" + SCRIPT.encode(),
            SCRIPT.encode().replace(b"\n", b"\n\x0c\n", 1),
            b"\xef\xbb\xbf" + SCRIPT.encode(),
        ],
        ids=["crlf", "latin-1", "form feed", "mark"],
    )
    def test_every_other_byte_of_a_script_is_as_before(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "train.py"
        path.write_bytes(content)
        assert run(["audit", "--script", str(path), "--select", "OPT001", "--fix"]) == 0
        assert path.read_bytes() == content.replace(b"adamw_torch", b"adamw_torch_fused")

    def test_what_is_still_found_gets_its_file_back(self, tmp_path: Path) -> None:
        content = b"\xef\xbb\xbf" + SFT.encode()
        (tmp_path / "sft.yaml").write_bytes(content)
        request = Request(files=(tmp_path / "sft.yaml",), select=("OPT001",))
        result = audit(request)
        (found,) = result.findings
        change = Change(Edit.SET, Place(found.place.file), "seed", 1)
        result = replace(result, findings=[replace(found, remedy=replace(found.remedy, changes=(change,)))])
        said: list[str] = []
        after = apply(request, result, propose(result, ask=None, say=said.append), said.append)
        assert [one.code for one in after.findings] == ["OPT001"]
        assert (tmp_path / "sft.yaml").read_bytes() == content
        assert any("still found" in line for line in said)
        assert not any("clean now" in line for line in said)

    def test_a_flag_given_twice_stays(self, tmp_path: Path) -> None:
        text = "trl sft --model_name_or_path a/b --dataset_name d --output_dir x --optim sgd --optim adamw_torch\n"
        path = write_files(tmp_path, {"run.sh": text}) / "run.sh"
        assert run(["audit", "--script", str(path), "--select", "OPT001", "--fix"]) == 1
        assert path.read_text() == text

    def test_unsafe_needs_a_terminal(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write_files(tmp_path, {"sft.yaml": SFT}) / "sft.yaml"
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        assert run(["audit", "--config", str(path), "--select", "OPT001", "--unsafe"]) == 2
        assert path.read_text() == SFT
        assert "no terminal" in capsys.readouterr().err
