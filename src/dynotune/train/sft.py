"""Supervised fine-tuning from a configuration to a run folder: every part is made here, once, in the order of the flow."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.data.encode import Encoder
from dynotune.data.load import Loaded, load_train_and_eval
from dynotune.data.quarantine import Quarantine
from dynotune.environment import collect
from dynotune.errors import ConfigError
from dynotune.model.embedding import embedding_rows
from dynotune.model.precision import choose_precision
from dynotune.model.prepare import prepare_model
from dynotune.model.tokenizer import load_tokenizer
from dynotune.objectives.sft import SFTObjective
from dynotune.plan.make import check_vocabulary, trainable_spans
from dynotune.plan.plan import Plan
from dynotune.train.assemble import assemble
from dynotune.train.device import autocast_of, seed_everything, set_up_process
from dynotune.train.evaluate import Evaluator, HeldOut
from dynotune.train.finish import finish
from dynotune.train.loop import train
from dynotune.train.run_folder import RunFolder

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run leaves behind."""

    folder: Path
    """The run folder; `model/` or `adapter/` in it loads in transformers or PEFT."""

    steps: int
    metrics: list[dict[str, Any]]
    """The rows of metrics.jsonl that this call wrote."""

    summary: dict[str, Any]
    """Figures of the whole run."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"


def train_sft(
    config: SFTConfig,
    *,
    model: "PreTrainedModel | None" = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    callbacks: "Sequence[TrainerCallback]" = (),
    peft_config: "PeftConfig | None" = None,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune by `config` and return where everything is.

    model, tokenizer: your own instead of `model_name_or_path`; a PeftModel is trained as it is.
    train_dataset, eval_dataset: a `datasets.Dataset` or a list of dicts; eval_dataset may be a dict of several.
    callbacks: instances of `transformers.TrainerCallback`.
    peft_config: a PEFT configuration instead of the `lora_*` keys.
    console: where to print; default the terminal.

    Raises `ConfigError`, `DataError`, `TemplateError` or `ModelError` before the first step, `TrainingError` after it.
    """
    began = time.perf_counter()
    console = console or Console()
    for sentence in config.notices:
        console.print(f"note: {sentence}", markup=False)
    device = set_up_process(config)
    precision = choose_precision(config, config, device)
    folder = RunFolder.open(config.output_dir, config.overwrite_output_dir, bool(config.resume_from_checkpoint))
    console.print(f"run folder: {folder.path}", markup=False)
    folder.write_text("config.yaml", config.to_yaml())
    folder.write_json("environment.json", collect())

    if tokenizer is None:
        tokenizer, changes = load_tokenizer_and_changes(config, config)
    else:
        changes = apply_settings(tokenizer, config, config)
    encoder = Encoder(tokenizer, config)
    loaded, held_out_data = load_train_and_eval(
        config, encoder, folder.path, train_dataset=train_dataset, eval_dataset=eval_dataset
    )
    plan, held_out = make_plan(config, folder, loaded, held_out_data)
    report_data(console, folder, loaded, held_out_data, plan)

    seed_everything(config.seed)  # the model's weights and adapter depend on the seed alone, not on the data's loading
    prepared = prepare_model(config, precision, device, tokenizer, changes, model, peft_config)
    for line in prepared.says:
        console.print(line, markup=False, highlight=False)
    for data in (loaded, *held_out_data.values()):
        check_vocabulary(data.examples, prepared.facts.vocabulary)
    trackers = Trackers(config.report_to, config.project, run_name(config, folder), folder.path, config.public_dict())
    hub = HubPusher(config, folder.path) if config.push_to_hub else None
    rows: list[dict[str, Any]] = []
    run = assemble(
        config,
        folder=folder,
        plan=plan,
        examples=loaded.examples,
        held_out=held_out,
        model=prepared.model,
        tokenizer=tokenizer,
        objective=SFTObjective(config),
        autocast=autocast_of(precision, device),
        device=device,
        callbacks=callbacks,
        console=console,
        listeners=[rows.append, lambda row: trackers.log(row, row["step"])],
        on_save=hub.push_checkpoint if hub else lambda path: None,
    )
    if run.update.waits_for_device:
        console.print(f"note: `optim: {config.optim}` has no fused kernel, so the host waits once a step", markup=False)
    try:
        train(run)
    finally:
        run.display.stop()
        trackers.finish()
    return finish(run, config, folder, prepared, loaded, rows, console, hub, time.perf_counter() - began)
