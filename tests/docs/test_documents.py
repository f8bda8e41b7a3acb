"""What the documents show works: YAML loads, commands and flags exist, Python runs, links and the tree are true."""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cyclopts import CycloptsError

from dynotune import ConfigError, DPOConfig, SFTConfig, load_config
from dynotune.cli import app
from tests.tiny import chats, tiny_model, tiny_tokenizer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    page: str
    line: int
    language: str
    title: str
    text: str


def blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in _blocks(page) if block.language == language]


def _blocks(page: Path) -> Iterator[Block]:
    fence = re.compile(r'^( *)```(\w+)(?: title="([^"]*)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
    text = page.read_text(encoding="utf-8")
    for found in fence.finditer(text):
        indent, language, title, body = found.groups()
        body = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        yield Block(str(page.relative_to(ROOT)), text.count("\n", 0, found.start()) + 1, language, title or "", body)


def name(block: Block) -> str:
    return f"{block.page}:{block.line}"


CONFIGURATIONS = [block for block in blocks("yaml") if block.title.startswith("sft.yaml")]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=name)
def test_every_configuration_loads(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in yaml.safe_load(block.text).get("env") or {}:
        monkeypatch.setenv(variable, os.environ.get(variable, ""))  # `env:` is exported: undone at the end of the test
    path = tmp_path / "sft.yaml"
    path.write_text(block.text)
    assert load_config(path, {}).learning_rate > 0
    path.write_text(block.text + "\nlerning_rate: 1\n")
    with pytest.raises(ConfigError, match="learning_rate"):  # negative control: loading does check keys
        load_config(path, {})


@pytest.mark.parametrize("block", [b for b in blocks("yaml") if b.title.startswith("dpo.yaml")], ids=name)
def test_every_configuration_of_dpo_loads(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "dpo.yaml"
    path.write_text(block.text)
    assert load_config(path, into=DPOConfig).notices == []
    path.write_text(block.text + "\npacking: true\n")
    with pytest.raises(ConfigError, match="a pair stays a pair"):  # negative control
        load_config(path, into=DPOConfig)


def test_the_axolotl_example_is_refused_with_our_names(tmp_path: Path) -> None:
    [block] = [block for block in blocks("yaml") if block.title == "axolotl.yaml"]
    path = tmp_path / "axolotl.yaml"
    path.write_text(block.text)
    with pytest.raises(ConfigError) as refused:
        load_config(path, {})
    text = str(refused.value)
    [ours] = [b for b in CONFIGURATIONS if b.page == block.page]
    for theirs, here in (("base_model", "model_name_or_path"), ("micro_batch_size", "per_device_train_batch_size")):
        assert theirs in text
        assert here in text
        assert here in ours.text


COMMANDS = [
    pytest.param(line.split("#")[0].strip(), id=f"{name(block)} {line[:40]}")
    for block in blocks("console")
    for line in block.text.splitlines()
    if line.startswith("dynotune ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_and_flag_exists(line: str) -> None:
    _, *words = shlex.split(line)
    app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] in ("sft", "prepare"):  # these also parse keys that TRL has and we refuse
        flags = {word.removeprefix("--") for word in words if word.startswith("--")}
        ours = {"config", "show", "json", "print_config"}
        ours |= (
            {"rebuild", "verify", "prune", "older_than", "export", "export_packed"} if words[0] == "prepare" else set()
        )
        assert flags <= {*SFTConfig.model_fields, *ours}


@pytest.mark.parametrize("line", ["dynotune train --config x", "dynotune merge a --outptu b", "dynotune sft --rl dpo"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    """Negative control of the test above."""
    with pytest.raises((CycloptsError, AssertionError)):
        test_every_command_and_flag_exists(line)


@pytest.mark.parametrize("block", blocks("python"), ids=name)
def test_python_examples_parse_and_import_what_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom):
            module = __import__(str(node.module), fromlist=[alias.name for alias in node.names])
            for alias in node.names:
                getattr(module, alias.name)


def test_the_readmes_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, but with a tiny model in the place of the hub's and four steps."""
    import json

    tiny_model().save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(220)))
    [config] = [b.text for b in CONFIGURATIONS if b.page == "README.md"]
    (tmp_path / "sft.yaml").write_text(config.replace("Qwen/Qwen2.5-0.5B-Instruct", "tiny") + "use_cpu: true\n")
    [python] = [b.text for b in blocks("python") if b.page == "README.md"]
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(python.replace('"max_steps": 100', '"max_steps": 4'), scope)
    assert (tmp_path / "runs" / "chats" / "adapter" / "adapter_model.safetensors").is_file()

    from dynotune.cli import run

    assert run(["merge", "runs/chats", "--output", "chats-merged"]) == 0
    assert (tmp_path / "chats-merged" / "model.safetensors").is_file()


def test_the_readmes_audit_is_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The busiest host reads all of the data, so that the counts are the same everywhere."""
    from dynotune.audit.read import named_data
    from dynotune.cli import run

    monkeypatch.setattr(named_data, "SECONDS", 600.0)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"<!-- audit: begin.*?```text\n(.*?)```\n\n<!-- audit: end", text, re.DOTALL)
    assert run(["audit", "--project", "examples/trl-script"]) == 1
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.strip().splitlines())
    assert shown == printed, f"put this into the README:\n{printed}"


def test_the_readmes_tree_is_the_tree() -> None:
    [tree] = [b.text for b in _blocks(ROOT / "README.md") if "src/dynotune/" in b.text]
    entries = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in tree.splitlines()[1:])
    assert all(entries.values()), "every entry has its phrase"
    folders = {f"{path.name}/" for path in (ROOT / "src" / "dynotune").iterdir() if (path / "__init__.py").is_file()}
    inside = {entry.strip().split("  ")[0] for entry in re.findall(r"^  \S.*", tree, re.MULTILINE)}
    assert folders == {entry for entry in inside if entry.endswith("/")}
    for entry in entries:
        for part in entry.split(", "):
            assert (ROOT / part).exists() or (ROOT / "src" / "dynotune" / part).exists(), part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
