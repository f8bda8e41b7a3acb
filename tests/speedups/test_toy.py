"""Promise: a speed-up is one file. The one in docs/speedups.md, imported, stands in the configuration, the schema, the
reference, the plan, the table and the proof; switched off, or patched so that it does nothing, its proof fails.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from dynotune import SFTConfig, train_sft
from dynotune.cli import run as run_command
from dynotune.config.load import load_config
from dynotune.errors import ConfigError
from dynotune.handbook.docs import pages
from dynotune.handbook.schema import json_schema
from dynotune.speedups.record import Record
from dynotune.speedups.registry import speedups, unregister
from dynotune.speedups.table import State
from tests.tiny import chats, tiny_model, tiny_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "speedups.md"
LAYERS = tiny_model().config.num_hidden_layers


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    """The file of the documentation, imported as a user would."""
    found = re.search(r'```python title="toy_silu.py"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    path = tmp_path / "toy_silu.py"
    path.write_text(found[1])
    spec = importlib.util.spec_from_file_location("toy_silu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy_silu"] = module
    spec.loader.exec_module(module)
    yield
    unregister("toy_silu")
    del sys.modules["toy_silu"]


def trained(tmp_path: Path, **settings: Any) -> tuple[Record, Any]:
    """The record of a short run, and its result."""
    config = SFTConfig(
        **{
            "output_dir": str(tmp_path / "run"), "max_steps": 3, "use_cpu": True, "save_strategy": "no",
            "learning_rate": 1e-2, "overwrite_output_dir": True, "logging_steps": 1, **settings,
        }
    )  # fmt: skip
    result = train_sft(
        config, model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=chats(24), console=Console(quiet=True)
    )
    return Record.read(tmp_path / "run"), result


@pytest.mark.usefixtures("toy")
def test_it_is_a_name_of_the_configuration_and_in_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("speedups: {toy_silu: off}\n")
    assert load_config(path).speedups == {"toy_silu": "off"}
    assert load_config(None, {"speedups.toy_silu": "on"}).speedups == {"toy_silu": "on"}
    assert "Computes SiLU" in json_schema(SFTConfig)["properties"]["speedups"]["properties"]["toy_silu"]["description"]


def test_without_its_file_there_is_no_such_name() -> None:
    with pytest.raises(ConfigError, match="there is no speed-up `toy_silu`"):
        SFTConfig(speedups={"toy_silu": "on"})
    assert "toy_silu" not in pages()["reference/speedups.md"]


@pytest.mark.usefixtures("toy")
def test_it_is_in_the_reference() -> None:
    page = pages()["reference/speedups.md"]
    assert "## `toy_silu` {#toy_silu}" in page
    assert "Proof: its function at every activation" in page


@pytest.mark.usefixtures("toy")
def test_it_is_in_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(8)))
    words = [
        "--model_name_or_path",
        str(tmp_path / "model"),
        "--dataset_name",
        str(tmp_path / "chats.jsonl"),
        "--use_cpu",
    ]
    assert run_command(["plan", *words, "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["speedups"]}
    assert rows["toy_silu"]["state"] == "chosen"


@pytest.mark.usefixtures("toy")
def test_it_is_proved_at_every_layer_and_learns_what_the_plain_path_learns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, result = trained(tmp_path, speedups={"toy_silu": "on"})
    row = {one.name: one for one in record.rows}["toy_silu"]
    assert (row.state, row.seen, row.of) == (State.ENGAGED, LAYERS, LAYERS)
    assert run_command(["engaged", str(tmp_path / "run")]) == 0
    assert re.search(rf"toy_silu +on +{LAYERS} of {LAYERS}", capsys.readouterr().out)
    _, plain = trained(tmp_path, packed_execution="off", speedups={"toy_silu": "off"})
    for mine, theirs in zip(result.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("toy")
def test_switched_off_nothing_of_it_is_seen(tmp_path: Path) -> None:
    record, _ = trained(tmp_path, speedups={"toy_silu": "off"})
    row = {one.name: one for one in record.rows}["toy_silu"]
    assert row.state is State.LEFT_OUT
    assert not any("OwnSilu" in kernel["name"] for kernel in record.kernels)


@pytest.mark.usefixtures("toy")
def test_a_toy_that_says_it_stands_and_does_nothing_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted lie."""
    one = speedups()["toy_silu"]
    honest = one.install

    def lying(site: Any) -> Any:
        found = honest(site)
        found.uninstall()  # type: ignore[union-attr]
        return found

    monkeypatch.setattr(one, "install", lying)
    record, _ = trained(tmp_path)
    row = {each.name: each for each in record.rows}["toy_silu"]
    assert (row.state, row.seen, row.of) == (State.TAKEN_OUT, 0, LAYERS)
    assert run_command(["engaged", str(tmp_path / "run")]) == 3
