"""One configuration file, run by `trl sft` and by `dynotune sft`: what each makes of it."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from rich.console import Console
from transformers import TrainerCallback

from tests.parity.fuzz.draw import Draw
from tests.parity.fuzz.shapes import tokenizer_of
from tests.tiny import tiny_model


@dataclass
class Outcome:
    """What one side did."""

    examples: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """Ids and labels of every example in the order of training; of bins, their documents joined."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    steps: int = 0
    checkpoints: list[str] = field(default_factory=list)
    said: str = ""
    error: Exception | None = None


def lay_out(d: Draw, folder: Path, shared: Path | None = None) -> Path:
    """Model, tokenizer, data and configuration in files, as a user has them. Returns the configuration's path."""
    tiny_model(d.kind, seed=d.seed % 5, **d.shape).save_pretrained(folder / "model")
    tokenizer_of(d.tokenizer, shared).save_pretrained(folder / "model")
    settings = {"model_name_or_path": str(folder / "model"), **d.settings}
    if d.mixture:
        cut = len(d.rows) // 2
        parts = {"a": d.rows[:cut], "b": d.rows[cut:]}
        settings["datasets"] = [{"path": str(folder / "data" / name), "fraction": 0.5} for name in parts]
        files = {f"{name}/train.jsonl": rows for name, rows in parts.items()}
    else:
        settings["dataset_name"] = str(folder / "data")
        files = {"train.jsonl": d.rows} | ({"test.jsonl": d.held_out} if d.held_out else {})
    for name, rows in files.items():
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if d.template is not None:
        (folder / "chat.jinja").write_text(d.template)
        settings["chat_template_path"] = str(folder / "chat.jinja")
    path = folder / "sft.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone().float() for name, p in model.named_parameters()}


class Begin(TrainerCallback):
    """Keeps the weights before the first step, having made the adapters of both sides the same if `same`."""

    def __init__(self, out: Outcome, same: bool) -> None:
        self.out, self.same = out, same

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        generator = torch.Generator().manual_seed(11)
        for name, p in sorted(model.named_parameters()):
            if self.same and p.requires_grad and "lora_" in name and "magnitude" not in name:
                p.data = 0.05 * torch.randn(p.shape, generator=generator)
        self.out.before = weights_of(model)


def run_trl(d: Draw, config: Path, output: Path) -> Outcome:
    """As `trl sft --config` does, by its own script."""
    import trl
    from peft import LoraConfig
    from trl.scripts import sft

    out, kept, trainer_of = Outcome(), [], trl.SFTTrainer

    def recorded(*args: Any, **kwargs: Any) -> Any:
        if d.peft is not None:
            kwargs["peft_config"] = LoraConfig(**d.peft)
        trainer = trainer_of(*args, callbacks=[Begin(out, d.same_adapter)], **kwargs)
        # transformers counts each row's first label, too, where a class is not called `...ForCausalLM` (GPT-2).
        trainer._loss_shifts_labels = True
        kept.append(trainer)
        out.examples = [(list(row["input_ids"]), list(row["labels"])) for row in trainer.train_dataset]
        return trainer

    environment = dict(os.environ)
    try:
        with mock.patch.object(trl, "SFTTrainer", recorded), contextlib.redirect_stdout(io.StringIO()):
            given = ["--config", str(config), "--output_dir", str(output)]
            arguments = sft.make_parser().parse_args_and_config(given, fail_with_unknown_args=False)
            sft.main(*arguments[:4])
    except Exception as error:  # noqa: BLE001  (whatever it raises is its answer)
        out.error = error
    finally:
        os.environ.clear()
        os.environ.update(environment)
    if kept:
        state = kept[0].state
        out.rows = [row for row in state.log_history if "loss" in row]
        out.evaluations = [row for row in state.log_history if "eval_loss" in row]
        out.steps, out.weights = state.global_step, weights_of(kept[0].model)
        out.checkpoints = sorted(path.name for path in output.glob("checkpoint-*"))
    return out


@contextlib.contextmanager
def examples_kept(out: Outcome) -> Iterator[None]:
    """Keep in `out` the examples that a run is planned with."""
    from dynotune.train.start import opened

    read_material = opened.read_material

    def read(*args: Any, **kwargs: Any) -> Any:
        found = read_material(*args, **kwargs)
        plan, examples = found.plan, found.items.examples
        places = zip(plan.spans.start[plan.rows].tolist(), plan.spans.end[plan.rows].tolist(), strict=True)
        documents = [(examples.ids[a:b].tolist(), examples.labels[a:b].tolist()) for a, b in places]
        if plan.packing is not None:
            documents = [
                ([i for one in documents[a:b] for i in one[0]], [i for one in documents[a:b] for i in one[1]])
                for a, b in pairwise(plan.packing.offsets.tolist())
            ]
        out.examples = documents
        return found

    with mock.patch.object(opened, "read_material", read):
        yield


def run_ours(d: Draw, config: Path, output: Path, **more: Any) -> Outcome:
    """As `dynotune sft --config` does. more: settings that the file has not."""
    from peft import LoraConfig

    from dynotune import load_config, train_sft

    out, printed = Outcome(), io.StringIO()
    try:
        with examples_kept(out):
            result = train_sft(
                load_config(config, {"output_dir": str(output), **d.ours, **more}),
                callbacks=[Begin(out, d.same_adapter)],
                peft_config=None if d.peft is None else LoraConfig(**d.peft),
                console=Console(file=printed, width=4000),
            )
        out.rows = [row for row in result.metrics if "loss" in row]
        out.evaluations = [row for row in result.metrics if "eval_loss" in row]
        out.steps, out.weights = result.steps, weights_of(result.model)
        out.checkpoints = sorted(path.name for path in (output / "checkpoints").glob("step-*"))
    except Exception as error:  # noqa: BLE001  (a traceback is a fault, which the comparison says)
        out.error = error
    out.said = printed.getvalue()
    return out
