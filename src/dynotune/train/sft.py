"""Supervised fine-tuning from a configuration to a run folder: every part is made here, once, in the order of the flow."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from dynotune.config.sft import SFTConfig
from dynotune.config.variables import export_env
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.examples import Examples
from dynotune.data.load import Loaded, load_train_and_eval
from dynotune.data.tokens.encode import Encoder
from dynotune.environment import collect
from dynotune.errors import Interrupted
from dynotune.model.precision import choose_precision
from dynotune.model.prepare import Prepared, prepare_model
from dynotune.model.saveable import make_saveable
from dynotune.model.tokenizer import apply_settings, load_tokenizer_and_changes
from dynotune.objectives.sft import SFTObjective
from dynotune.parallel.alike import begin_alike
from dynotune.parallel.join import joined, place
from dynotune.parallel.ranks import Ranks
from dynotune.plan.content import Content, make_content
from dynotune.plan.make import check_vocabulary, rows_without_labels
from dynotune.plan.plan import Plan
from dynotune.train.assemble import assemble
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.contents import read_state
from dynotune.train.checkpoints.differences import with_batch_of
from dynotune.train.device import draw_apart, seed_everything, set_up_process
from dynotune.train.evaluate import HeldOut
from dynotune.train.faults.before import out_of_memory_explained
from dynotune.train.finish import Left, finish, leave
from dynotune.train.hub import HubPusher
from dynotune.train.loop import Run, train
from dynotune.train.outside.asked import Asked, limit_of
from dynotune.train.outside.kept import what_is_kept
from dynotune.train.outside.signals import StoppedError, heard, listening, number_of
from dynotune.train.paths.choose import Execution, choose_execution
from dynotune.train.ranks import find_checkpoint, open_folder
from dynotune.train.rehearse import in_words, rehearse
from dynotune.train.run_folder import RunFolder
from dynotune.train.trackers import AT_ONCE, Trackers

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


@listening()
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
    Raises `Interrupted` where SIGINT, SIGTERM or `max_time` ended the run before its last step: it is saved. In the main
    thread only are signals heard; handlers that were there are put back, and called once the run is saved.
    """
    export_env(config.env)
    here = place(config)
    device = set_up_process(config, here.local_rank)
    with joined(here, device, config.ddp_timeout) as ranks:
        result, left = _train(
            config, ranks, device, model, tokenizer, train_dataset, eval_dataset, callbacks, peft_config, console
        )
    if left:  # behind the last meeting of ranks: to leave is no failure of any of them
        raise Interrupted(left.text, why=left.why, step=result.steps, checkpoint=left.checkpoint, result=result)
    return result


def prove_sft(config: SFTConfig, console: Console | None = None) -> dict[str, Any]:
    """Do what a run of `config.gpus` processes does, on this one alone and up to the first update; write no run.

    Returns the figures of the largest micro-batch. Raises what the run would.
    """
    alone = config.replace(report_to="none", push_to_hub=False)
    export_env(config.env)
    device = set_up_process(config)
    result, _ = _train(
        alone, Ranks(world=config.gpus or 1), device, None, None, None, None, (), None, console, rehearsal=True
    )
    return result.summary


def _train(
    config: SFTConfig,
    ranks: Ranks,
    device: torch.device,
    model: "PreTrainedModel | None",
    tokenizer: "PreTrainedTokenizerBase | None",
    train_dataset: Any,
    eval_dataset: Any,
    callbacks: "Sequence[TrainerCallback]",
    peft_config: "PeftConfig | None",
    console: Console | None,
    rehearsal: bool = False,
) -> tuple[RunResult, Left | None]:
    """One rank's part of a run, and how it was left early. What must happen once for all happens on the first.

    rehearsal: one process stands for all of them and stops before the first update.
    """
    began = time.perf_counter()
    signals = heard()
    left: Left | None = None
    resume = config.resume_from_checkpoint
    folder = open_folder(config, ranks)
    console = console if console and ranks.is_first else Console()
    say = _sayer(console)
    for sentence in config.notices:
        say(f"note: {sentence}")
    precision = choose_precision(config, config, device, peft_config)
    prepared: Prepared | None = None
    run: Run | None = None
    trackers: Trackers | None = None
    try:
        folder.refuse_inputs_inside(_named_paths(config))
        checkpoints = Checkpoints(folder.checkpoints, config, ranks=ranks, gather=ranks.gather, say=say)
        resume_from = find_checkpoint(checkpoints, resume, ranks) if resume else None
        if resume_from:
            config = _with_batch_of(config, resume_from, ranks.world, say)
        name = config.run_name or folder.path.resolve().name
        # What can fail for want of a login or a package fails now, not after the data has been read.
        hub = HubPusher(config, folder.path, say=say) if config.push_to_hub and ranks.is_first else None
        report_to = config.report_to if ranks.is_first else "none"
        trackers = Trackers(report_to, config.project, name, folder.path, config.public_dict(), say=say)
        sent = trackers.log
        if tokenizer is None:
            tokenizer, changes = load_tokenizer_and_changes(config, config)
        else:
            changes = apply_settings(tokenizer, config, config)
        encoder = Encoder(tokenizer, config)
        if ranks.world > 1 and config.token_cache == "off":  # noqa: S105  (no secret: it is the key's value)
            say(f"note: `token_cache: off`: each of the {ranks.world} processes tokenises all rows by itself")
        with ranks.one_after_another("preparing the data"):
            data, held_out_data = load_train_and_eval(
                config,
                encoder,
                folder.starting if folder.writes else None,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                say=say,
            )
        plan, examples, held_out = make_plan(config, folder, tokenizer, data, held_out_data, ranks)
        _report_data(config, console, encoder, data, held_out_data, plan)

        seed_everything(config.seed)  # what is drawn for the model must not depend on what was drawn for the data
        with out_of_memory_explained("loading", config, device):
            prepared = prepare_model(config, precision, device, tokenizer, changes, model, peft_config)
        for line in (*prepared.says, make_saveable(prepared.model)):
            if line:
                say(line)
        for loaded in (data, *held_out_data.values()):
            check_vocabulary(loaded.examples, prepared.facts.vocabulary)
        rows: list[dict[str, Any]] = []
        objective = SFTObjective(config)
        documents = [(plan.spans, plan.rows), *((held.spans, held.rows) for held in held_out.values())]
        with out_of_memory_explained("probing", config, device):
            execution = choose_execution(
                config,
                plan,
                prepared.model,
                objective,
                longest=max(int(spans.lengths_of(some).max()) for spans, some in documents),
                precision=precision,
                undo=prepared.undo,
                ranks=ranks,
            )
        plan = execution.plan
        for line in (*execution.says, *([plan.ranks_summary()] if ranks.world > 1 else [])):
            say(line)
        draw_apart(config.seed, ranks)
        outside = Asked(signals, limit_of(config, signals, prepared.model), say)
        run = assemble(
            config,
            folder=folder,
            plan=plan,
            path=execution.path,
            examples=examples,
            held_out=held_out,
            model=prepared.model,
            tokenizer=tokenizer,
            objective=objective,
            autocast=execution.autocast,
            memory=execution.memory,
            ways=execution.ways,
            device=device,
            callbacks=callbacks,
            checkpoints=checkpoints,
            resume_from=resume_from,
            console=console,
            listeners=[rows.append, lambda row: sent(row, row["step"])],
            on_save=hub.push_checkpoint if hub else lambda checkpoint: None,
            ranks=ranks,
            outside=outside,
        )
        if run.update.waits_for_device:
            say(f"note: `optim: {config.optim}` has no fused kernel here, so the host waits for the device once a step")
        if rehearsal:
            figures = rehearse(run)
            say(in_words(figures, ranks.world))
            return RunResult(folder.path, 0, [], figures, prepared.model, tokenizer), None
        begin_alike(
            ranks,
            prepared.model,
            {
                "configuration": config.public_dict(),
                "plan": run.plan.to_json(),
                "execution": {"path": type(execution.path).__name__},
                "checkpoint": {"step": run.trainee.progress.step},
            },
        )
        folder.begin()
        if resume_from and ranks.is_first:
            for sentence in folder.unseal():
                say(f"note: since the run was sealed, {sentence}. The checkpoint is whole, and training goes on")
            progress = run.trainee.progress
            run.events.remember(folder.forget_after(progress.step, progress.owes_evaluation))
            for path in run.checkpoints.abandon_after(run.trainee.progress.step):
                say(f"note: a checkpoint of the run that was left is now {path}")
        _write_start(folder, config, prepared.facts.to_json(), execution, run.plan, data, held_out_data)
        folder.seal(run.trainee.progress.step)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        try:
            train(run)
        finally:
            outside.end()
            run.display.stop()
            checkpoints.close()
        for line in execution.path.notes():
            say(line)
        if run.leaving:
            left, summary = leave(run, folder, began)
        else:
            summary = finish(run, config, folder, hub, began)
    except BaseException as error:
        ranks.fail(error)  # at once: what follows may take its time, and others wait
        if isinstance(error, KeyboardInterrupt):
            # What an older run left in the folder is no progress of this one, unless this one resumes it.
            found = Checkpoints(folder.checkpoints, config).all() if folder.begun or resume else []
            step = run.trainee.progress.step if run else None
            raise StoppedError(number_of(error), what_is_kept(folder, found, step)) from None
        raise
    finally:
        if prepared:
            prepared.restore()
        folder.release()
        if trackers:
            trackers.finish(*((AT_ONCE,) if signals and signals.leave else ()))
    return RunResult(folder.path, run.trainee.progress.step, rows, summary, prepared.model, tokenizer), left


def make_plan(
    config: SFTConfig,
    folder: RunFolder,
    tokenizer: "PreTrainedTokenizerBase",
    data: Loaded,
    held_out_data: Mapping[str, Loaded],
    ranks: Ranks,
) -> tuple[Plan, Examples, dict[str, HeldOut]]:
    """Apply `max_length` and packing to every data set, account for what they cut, and plan the run.

    Returns the plan, the documents that it is made of, and the held-out data.
    """
    quarantine = Quarantine(folder.starting / "quarantine.jsonl").write if folder.writes else None

    shuffle_seed = config.seed if config.shuffle_dataset else None

    def content_of(loaded: Loaded, packed: bool) -> Content:
        return make_content(
            loaded.examples,
            config,
            loaded.ledger,
            quarantine,
            lambda ids: str(tokenizer.decode(ids)),
            shuffle_seed=shuffle_seed,
            packing=config.packing_strategy if packed else None,
        )

    train = content_of(data, config.packing)
    # Shuffled rows make other steps, so a checkpoint must not go on under them.
    digest = data.examples.digest() + ("" if shuffle_seed is None else f", shuffled by {shuffle_seed}")
    plan = Plan(
        train.spans,
        train.rows,
        config,
        config.seed,
        digest,
        packing=train.packing,
        rank=ranks.rank,
        world=ranks.world,
    )
    held_out = {}
    for name, loaded in held_out_data.items():
        content = content_of(loaded, config.packing_of_evaluation)
        held_out[name] = HeldOut(content.examples, content.spans, content.labelled)
    return plan, train.examples, held_out


def _with_batch_of(config: SFTConfig, checkpoint: Path, world: int, say: Any) -> SFTConfig:
    """The configuration with the checkpoint's examples a step: a run goes on with the steps that it was planned with."""
    examples = read_state(checkpoint)["plan"]["examples_per_step"]
    config, sentence = with_batch_of(
        config, checkpoint, examples, "global_batch_size" in config.model_fields_set, world
    )
    if sentence:
        say(sentence)
    return config


def _report_data(
    config: SFTConfig, console: Console, encoder: Encoder, data: Loaded, held_out_data: Mapping[str, Loaded], plan: Plan
) -> None:
    """What was read, what became of it, and what a step will contain."""
    say = _sayer(console)
    for name, loaded in {"training data": data, **held_out_data}.items():
        for sentence in loaded.lines():
            say(f"{name}: {sentence}")
        console.print(loaded.ledger.summary(name))
        if lost := rows_without_labels(loaded.ledger, config):
            say(f"note: {name}: {lost}")
    for sentence in encoder.report:
        say(f"template: {sentence}")
    for sentence in plan.summary():
        say(sentence)


def _write_start(
    folder: RunFolder,
    config: SFTConfig,
    model: Mapping[str, Any],
    execution: Execution,
    plan: Plan,
    data: Loaded,
    held_out_data: Mapping[str, Loaded],
) -> None:
    """The files of the run folder that are known before the first step."""
    folder.write_text("config.yaml", config.to_yaml())
    folder.write_json("environment.json", {**collect(), "model": model, "execution": execution.says})
    folder.write_json("plan.json", plan.to_json())
    evaluation = {name: loaded.ledger.to_json() for name, loaded in held_out_data.items()}
    folder.write_json("ledger.json", {**data.ledger.to_json(), "format": data.format, "evaluation": evaluation})


def _named_paths(config: SFTConfig) -> dict[str, str]:
    """Values of the keys that may name files or folders which the run reads."""
    keys = ("model_name_or_path", "tokenizer_name_or_path", "dataset_name", "chat_template_path")
    named = {key: str(value) for key in keys if (value := getattr(config, key))}
    named |= {f"datasets[{i}].path": entry.path for i, entry in enumerate(config.datasets)}
    held_out = config.eval_dataset_name or {}
    return named | (held_out if isinstance(held_out, dict) else {"eval_dataset_name": held_out})


def _sayer(console: Console) -> Any:
    return lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
