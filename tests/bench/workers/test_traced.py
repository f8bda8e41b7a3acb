"""Promise: an arm is traced where its trace says something, once, and what that takes is kept; a change of arms finds what
was found before."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked, ladder
from dynotune.bench.asking.schedule import Rules
from dynotune.bench.workers.hand import write
from dynotune.bench.workers.worker import Worker
from dynotune.config.sft import SFTConfig
from dynotune.model.attention import examination
from dynotune.parallel.ranks import Ranks
from dynotune.speedups.registry import speedups, switches
from tests.tiny import chats, tiny_model, tiny_tokenizer

OFF: Any = dict.fromkeys(switches(), "off")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SFTConfig:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(60)))
    return SFTConfig(
        model_name_or_path=str(tmp_path / "model"), dataset_name=str(tmp_path / "rows.jsonl"), use_cpu=True,
        per_device_train_batch_size=2, report_to="none", max_length=100,
    )  # fmt: skip


@pytest.fixture
def worker() -> Iterator[Worker]:
    with ExitStack() as stack:
        yield Worker(Ranks(), torch.device("cpu"), Console(quiet=True), stack)


def proof(worker: Worker, folder: Path, name: str, config: SFTConfig, *, shares: bool) -> dict[str, Any]:
    path = write(Arm(name, config), folder)
    order = {"do": "stand", "name": name, "method": "sft", "path": str(path), "folder": str(folder / "run")}
    worker.do({**order, "shares": shares})
    worker.do({"do": "take", "first": 1, "steps": 2, "discarded": 0})
    return worker.do({"do": "proof", "name": name})


def test_the_plain_path_is_traced_where_somebody_asks_on_what_it_spends_its_time(
    config: SFTConfig, worker: Worker, tmp_path: Path
) -> None:
    """Untraced it says of each speed-up that it is off. Control: an arm in which something stands is traced whoever asks."""
    plain = config.replace(speedups=OFF)
    silent = proof(worker, tmp_path, "plain", plain, shares=False)
    assert silent["spent"] is None
    assert silent["seconds"] == 0
    assert {row["name"]: row["state"] for row in silent["rows"]} == dict.fromkeys(speedups(), "left out")
    asked = proof(worker, tmp_path, "asked", plain, shares=True)
    assert asked["spent"]["real_tokens"] > 0
    assert asked["seconds"] > 0
    assert {row["name"]: row["state"] for row in asked["rows"]} == {row["name"]: "left out" for row in silent["rows"]}
    packed = proof(worker, tmp_path, "packed", config, shares=False)
    assert "engaged" in {row["state"] for row in packed["rows"]}


def test_where_somebody_asks_on_what_it_spends_its_time_all_of_a_step_is_traced(
    config: SFTConfig, worker: Worker, tmp_path: Path
) -> None:
    """Since a share of some micro-batches is none of the step. Control: a proof alone takes a few of them."""
    many = config.replace(per_device_train_batch_size=6, packed_execution="off")
    for shares, traced in ((True, [*range(6)]), (False, [0, 5])):
        found = proof(worker, tmp_path, f"shares {shares}", many, shares=shares)
        assert worker.stage is not None
        proved = worker.stage.run.engagement.proof
        assert proved is not None
        assert proved.evidence.facts["traced_micro_batches"] == traced
        assert (found["spent"] is not None) is shares


def test_what_an_arms_step_should_not_hold_is_told(config: SFTConfig, worker: Worker, tmp_path: Path) -> None:
    """A value that a layer reads. Control: before it does."""
    assert proof(worker, tmp_path, "clean", config, shares=False)["unwanted"] == []
    assert worker.stage is not None
    layer = next(one for name, one in worker.stage.it.prepared.model.named_modules() if name.endswith("layers.1.mlp"))

    def reads(module: Any, given: Any, result: torch.Tensor) -> None:
        result.detach().max().item()

    hook = layer.register_forward_hook(reads)
    [told] = proof(worker, tmp_path, "reads", config, shares=False)["unwanted"]
    hook.remove()
    assert told.startswith("waits of the host (aten::_local_scalar_dense (forward, ")
    assert "layers.1" in told


def test_an_arm_that_stands_again_is_not_examined_again(
    config: SFTConfig, worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: one in which something else stands beneath is."""
    examined: list[object] = []
    look = examination._try_out
    monkeypatch.setattr(examination, "_try_out", lambda probe: examined.append(probe) or look(probe))
    plain = config.replace(speedups=OFF)
    for name, one in (("a", config), ("b", plain), ("a", config), ("b", plain), ("a", config)):
        proof(worker, tmp_path, name, one, shares=False)
    assert len(examined) == 1
    proof(worker, tmp_path, "c", config.replace(max_grad_norm=0.5), shares=False)
    assert len(examined) == 2


def test_of_a_ladder_the_plain_path_tells_no_ceiling(config: SFTConfig, tmp_path: Path) -> None:
    """Packed execution changes all of a step. Control: what changes the update alone has one, and asks."""

    def asks(*names: str) -> set[str]:
        changes = {name: {f"speedups.{name}": "auto"} for name in names}
        arms, pairings = ladder(Arm("plain path", config.replace(speedups=OFF)), changes)
        return Asked("ladder", arms, pairings, Rules(), 5, 0, tmp_path, "dynotune bench").shares_of

    assert asks("packed_execution", "labelled_rows_head", "prefetch") == {"+ packed_execution", "+ labelled_rows_head"}
    assert "plain path" in asks("fused_optimizer", "prefetch")
