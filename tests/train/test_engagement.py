"""Promise: what a run says that it uses was seen in one of its steps; what was not is taken out and said, or stops the run.

On the CPU, where operators and autograd functions are the evidence.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.cli import run as run_command
from dynotune.errors import ConfigError, TrainingError
from dynotune.execution.feed import Feed
from dynotune.execution.packed import PackedPath
from dynotune.model import lora
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.remembered import Remembered
from dynotune.train.engagement import Engagement
from dynotune.train.optimizer import Update
from tests.speedups.needs_the_head import a_head_that_nobody_uses, needs_the_head
from tests.speedups.upgraded import upgraded
from tests.tiny import chats, tiny_model

LORA = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "lora_dropout": 0.0}
ON_THE_CPU = ("packed_execution", "labelled_rows_head", "prefetch", "fused_optimizer", "fused_lora")


@pytest.fixture
def said() -> Any:
    """A console, and what it printed as one text."""
    console = Console(record=True, width=400)
    return console, lambda: console.export_text(clear=False)


def go(run_tiny: Any, tmp_path: Path, **settings: Any) -> dict[str, Any]:
    """Observations of a run of four steps, by name."""
    run_tiny(
        **{
            "rows": chats(32), "max_steps": 4, "per_device_train_batch_size": 8, "micro_batch_tokens": 128,
            "overwrite_output_dir": True, **LORA, **settings,
        }
    )  # fmt: skip
    found: dict[str, Any] = json.loads((tmp_path / "run" / "engagement.json").read_text())
    return found


def test_what_runs_on_the_cpu_is_seen_in_the_second_step(run_tiny: Any, tmp_path: Path) -> None:
    found = go(run_tiny, tmp_path)
    assert found["step"] == 2
    verdicts = {name: seen["verdict"] for name, seen in found["observations"].items()}
    assert {name: verdicts.get(name) for name in ON_THE_CPU} == dict.fromkeys(ON_THE_CPU, "engaged")


def test_a_run_says_how_many_of_its_steps_its_proof_took(run_tiny: Any) -> None:
    summary = run_tiny(max_steps=14).summary
    a_step = summary["time/proof"] / summary["proof_steps"]
    assert 0 < summary["steady_steps"] * a_step < summary["train_seconds"]
    for few in (2, 10):
        short = run_tiny(max_steps=few, overwrite_output_dir=True).summary
        assert "proof_steps" not in short, "no step stands behind the first ones"


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_a_speed_up_that_is_off_is_not_proved(name: str, run_tiny: Any, tmp_path: Path) -> None:
    """Negative control: it is installed as far as anybody says, and something else ran."""
    speedup = speedups()[name]
    held = speedup.install

    def says_so_only(site: Any) -> Any:
        there = held(site)
        there.uninstall()
        return there

    with pytest.MonkeyPatch.context() as patch:
        if name == "packed_execution":  # the others need it: documents go one by one all the same
            patch.setattr(PackedPath, "loss", one_by_one)
        else:
            patch.setattr(speedup, "install", says_so_only)
        if name == "packed_execution":  # what lays the plan out cannot leave a run that goes on
            with pytest.raises(TrainingError, match="packed_execution was not seen to run"):
                go(run_tiny, tmp_path)
            work = "sft of LlamaForCausalLM under LORA"
            assert Remembered.here("cpu").failure(name, work) is not None
            with upgraded("transformers"):
                assert Remembered.here("cpu").failure(name, work) is None
        else:
            go(run_tiny, tmp_path)
    found = json.loads((tmp_path / "run" / "engagement.json").read_text())
    assert found["observations"][name]["verdict"] == "not engaged"


def one_by_one(self: PackedPath, batch: Any) -> Any:
    """Documents of a packed micro-batch in a pass each."""
    from dynotune.model.packed import pack

    losses = []
    for i, ids_T in enumerate(batch.ids_T.split(list(batch.lengths))):
        document = ids_T.numpy().astype("int32"), ids_T.numpy().astype("int32")
        if i < batch.documents:
            losses.append(right(self, pack([document], len(ids_T), ids_T.device)))
    return sum(loss for loss, _ in losses), sum(sums for _, sums in losses)


right = PackedPath.loss


def test_a_step_of_the_plain_path_is_no_proof_of_packed_execution(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each document has a pass of its own there, in its own length."""
    expected: list[Any] = []
    seen: list[Any] = []
    conclude = Engagement.conclude

    def watched(engagement: Engagement, run: Any) -> list[str]:
        if (packed := engagement.installed.get("packed_execution")) is not None:
            expected.extend(engagement.installed.expectations(packed))
        assert engagement._evidence is not None
        seen.append(engagement._evidence)
        return conclude(engagement, run)

    monkeypatch.setattr(Engagement, "conclude", watched)
    go(run_tiny, tmp_path)
    go(run_tiny, tmp_path, packed_execution="off")
    packed, plain = seen
    assert judge(expected, packed, ()).verdict == "engaged"
    assert judge(expected, plain, ()).verdict == "not engaged"


def test_a_head_that_nobody_uses_is_taken_out_said_and_remembered(
    run_tiny: Any, tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, text = said
    monkeypatch.setattr(speedups()["labelled_rows_head"], "package", "liger-kernel")
    with monkeypatch.context() as patch:
        a_head_that_nobody_uses(patch)
        go(run_tiny, tmp_path, console=console)
    assert "labelled_rows_head was not seen to run" in text()
    assert "It is taken out, here and in later runs of its kind on this machine" in text()
    found = go(run_tiny, tmp_path, console=console, packed_execution="auto")
    assert "labelled_rows_head" not in found["observations"]
    with upgraded("rich"):
        assert "labelled_rows_head" not in go(run_tiny, tmp_path)["observations"]
    with upgraded("liger-kernel"):
        assert go(run_tiny, tmp_path)["observations"]["labelled_rows_head"]["verdict"] == "engaged"


def test_what_was_asked_for_by_name_and_does_not_run_stops_the_run_with_what_it_has(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_head_that_nobody_uses(monkeypatch)
    with pytest.raises(TrainingError, match=r"speedups: \{labelled_rows_head: on\}.*not engaged") as raised:
        go(run_tiny, tmp_path, speedups={"labelled_rows_head": "on"}, save_strategy="steps", save_steps=100)
    assert "step-2" in str(raised.value)
    assert (tmp_path / "run" / "checkpoints" / "step-2").is_dir()


def test_what_was_asked_for_by_name_and_needs_one_that_does_not_run_stops_the_run_with_what_it_has(
    run_tiny: Any, tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs itself; what it needs is `auto`, and is taken out."""
    console, text = said
    a_head_that_nobody_uses(monkeypatch)
    saves = {"save_strategy": "steps", "save_steps": 100}
    with needs_the_head():
        with pytest.raises(
            TrainingError, match=r"speedups: \{needs_the_head: on\}.*needs labelled_rows_head"
        ) as raised:
            go(run_tiny, tmp_path, console=console, speedups={"needs_the_head": "on"}, **saves)
        found = json.loads((tmp_path / "run" / "engagement.json").read_text())
        assert found["observations"]["labelled_rows_head"]["verdict"] == "not engaged"
        assert found["observations"]["needs_the_head"]["verdict"] == "engaged"
        assert "`speedups: {needs_the_head: auto}` to go on without it" in str(raised.value)
        assert "step-2" in str(raised.value)
        assert (tmp_path / "run" / "checkpoints" / "step-2").is_dir()
        assert "labelled_rows_head was not seen to run" in text()
        go(run_tiny, tmp_path, speedups={"needs_the_head": "auto"})  # the remedy
    assert len(_rows(tmp_path)) == 4


def leave_a_layer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lie: fused LoRA is installed, but for one output projection of the second layer."""
    whole = lora.install

    def all_but_one(*args: Any, **more: Any) -> Any:
        engaged = whole(*args, **more)
        name = next(name for name in engaged.leaders() if "layers.1" in name and name.endswith("o_proj"))
        del engaged.linears[name].module.forward
        return engaged

    monkeypatch.setattr(lora, "install", all_but_one)


def test_a_patch_that_left_one_layer_out_is_partial_and_names_it(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_layer_out(monkeypatch)
    seen = go(run_tiny, tmp_path)["observations"]["fused_lora"]
    assert seen["verdict"] == "partial"
    assert seen["seen"] == seen["of"] - 1
    [missing] = seen["missing"]
    assert "layers.1.self_attn.o_proj" in missing


def hooked_model() -> Any:
    """One linear of the second layer is watched by somebody, who must go on seeing it."""
    model = tiny_model()
    model.model.layers[1].self_attn.o_proj.register_forward_hook(lambda module, args, output: None)
    return model


def test_a_linear_that_was_left_out_when_it_was_installed_is_counted_and_named(run_tiny: Any, tmp_path: Path) -> None:
    whole = go(run_tiny, tmp_path)["observations"]["fused_lora"]
    found = go(run_tiny, tmp_path, model=hooked_model())
    seen = found["observations"]["fused_lora"]
    assert (whole["verdict"], whole["seen"]) == ("engaged", whole["of"])
    assert (seen["verdict"], seen["seen"], seen["of"]) == ("partial", whole["of"] - 1, whole["of"])
    [missing] = seen["missing"]
    assert missing.endswith("layers.1.self_attn.o_proj (left out: a hook watches a part of it)")
    assert found["left_out"]["fused_lora"] == [missing.replace(" (left out", "").removesuffix(")")]
    assert run_command(["engaged", str(tmp_path / "run")]) == 3


def test_what_is_demanded_stops_where_a_linear_was_left_out(run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"fused_lora was partial .*o_proj \(left out: a hook watches"):
        go(run_tiny, tmp_path, model=hooked_model(), speedups={"fused_lora": "on"})


def test_a_module_of_another_kind_does_not_count(run_tiny: Any, tmp_path: Path) -> None:
    """An adapter on the embedding is no linear: nobody expects it there."""
    targets = ["q_proj", "o_proj", "embed_tokens"]
    found = go(run_tiny, tmp_path, lora_target_modules=targets)
    seen = found["observations"]["fused_lora"]
    assert (seen["verdict"], seen["missing"]) == ("engaged", [])
    [left_out] = found["left_out"]["fused_lora"]
    assert "embed_tokens: is PEFT's layer.Embedding" in left_out


def test_a_feed_that_ignores_prefetch_is_seen(run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Feed.__init__
    monkeypatch.setattr(
        Feed, "__init__", lambda self, documents, path, device, ahead=0: begin(self, documents, path, device, 0)
    )
    assert go(run_tiny, tmp_path)["observations"]["prefetch"]["verdict"] == "not engaged"


def test_the_update_goes_on_without_its_kernel(
    run_tiny: Any, tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken out in the middle of a run, with states that the fused kernel made."""
    console, text = said
    whole = Update.__init__

    def other(self: Update, parameters: Any, optimizer: Any, *more: Any) -> None:
        whole(self, parameters, optimizer, *more)
        self.set_fused(False)

    undisturbed = go(run_tiny, tmp_path, max_steps=6)
    losses = [row["loss"] for row in _rows(tmp_path)]
    assert undisturbed["observations"]["fused_optimizer"]["verdict"] == "engaged"
    monkeypatch.setattr(Update, "__init__", other)
    go(run_tiny, tmp_path, max_steps=6, console=console)
    assert "fused_optimizer was not seen to run" in text()
    assert [row["loss"] for row in _rows(tmp_path)] == pytest.approx(losses, rel=1e-4)


def _rows(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "loss" in row]


def test_a_step_that_is_traced_is_the_step_that_it_would_have_been(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynotune.train.engagement import Engagement

    go(run_tiny, tmp_path)
    traced = [row["loss"] for row in _rows(tmp_path)]
    monkeypatch.setattr(Engagement, "due", lambda self, number, last: False)
    run_tiny(
        rows=chats(32),
        max_steps=4,
        per_device_train_batch_size=8,
        micro_batch_tokens=128,
        overwrite_output_dir=True,
        **LORA,
    )
    assert [row["loss"] for row in _rows(tmp_path)] == traced


def test_a_run_of_one_step_is_proved_in_it(run_tiny: Any, tmp_path: Path) -> None:
    assert go(run_tiny, tmp_path, max_steps=1)["step"] == 1


def test_a_name_that_is_none_is_refused(run_tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labelled_rows_head"):
        go(run_tiny, tmp_path, speedups={"labeled_rows_head": "on"})


def test_packed_execution_that_is_demanded_goes_on_where_a_step_has_one_document(run_tiny: Any, tmp_path: Path) -> None:
    """Packed and plain are the same then, and no trace can tell them apart."""
    found = go(run_tiny, tmp_path, per_device_train_batch_size=1, packed_execution="on")
    assert found["speedups"] if "speedups" in found else found["observations"]
    assert len(_rows(tmp_path)) == 4
