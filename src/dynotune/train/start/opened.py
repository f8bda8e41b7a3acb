"""A run before it is decided how its steps are executed: its folder held, its data read and planned, its model made."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError, TrainingError
from dynotune.measure.parts import Parts
from dynotune.model.positions import check_positions
from dynotune.model.precision import Precision, choose_precision
from dynotune.model.prepare import Prepared, prepare_model
from dynotune.model.saveable import make_saveable
from dynotune.model.tokenizer import apply_settings, load_tokenizer_and_changes
from dynotune.parallel.ranks import Ranks
from dynotune.say import sayer
from dynotune.train import eight_bits
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.faults.before import out_of_memory_explained
from dynotune.train.folder.hub import HubPusher
from dynotune.train.folder.run_folder import RunFolder
from dynotune.train.outside.kept import what_is_kept
from dynotune.train.outside.signals import Signals, StoppedError, heard, number_of
from dynotune.train.run import Run
from dynotune.train.start.device import seed_everything
from dynotune.train.start.given import Given
from dynotune.train.start.material import Material, named_paths, read_material
from dynotune.train.start.ranks import go_on_from, open_folder
from dynotune.train.start.recipe import Recipe
from dynotune.train.telling.trackers import AT_ONCE, Trackers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(slots=True)
class Opened:
    """What one rank has of a run whose folder it holds."""

    config: WholeConfig
    """With what a checkpoint that is resumed decides."""

    folder: RunFolder
    checkpoints: Checkpoints
    resume_from: Path | None
    hub: HubPusher | None
    trackers: Trackers
    signals: Signals | None
    precision: Precision
    tokenizer: "PreTrainedTokenizerBase"
    material: Material
    prepared: Prepared
    ranks: Ranks
    device: torch.device
    console: Console
    say: Callable[[str], None]
    run: Run | None = None
    """What runs in it, once that stands."""

    trained: bool = False
    """Whether what stood in it before has trained the model: the weights are not those that it was opened with."""

    examined: dict[Hashable, Any] = field(default_factory=dict)
    """What was found by trying the model out, for whatever stands in it one after the other."""

    set_up: Parts = field(default_factory=Parts)
    """What standing in it took, by what was done."""


@contextmanager
def opened(
    config: WholeConfig,
    recipe: Recipe,
    given: Given,
    ranks: Ranks,
    device: torch.device,
    console: Console | None,
) -> Iterator[Opened]:
    """Hold the folder, read the data, make the model; behind it the caller's model is as it was and the folder is free.

    An error inside, of a step too, is told to the other ranks and said in words of this run.
    """
    signals = heard()
    folder = open_folder(config, ranks)
    console = console if console and ranks.is_first else Console()
    say = folder.lines.say = sayer(console)
    prepared: Prepared | None = None
    trackers: Trackers | None = None
    found: Opened | None = None
    try:
        for sentence in config.notices:
            say(f"note: {sentence}")
        precision = choose_precision(config, config, device, given.peft_config)
        folder.refuse_inputs_inside(named_paths(config))
        checkpoints = Checkpoints(folder.checkpoints, config, ranks=ranks, gather=ranks.gather, say=say)
        config, resume_from = go_on_from(config, checkpoints, ranks, say)
        name = config.run_name or folder.path.resolve().name
        # What can fail for want of a login or a package fails now, not after the data has been read.
        hub = HubPusher(config, folder.path, say=say) if config.push_to_hub and ranks.is_first else None
        if (lacking := eight_bits.why_not(config.optim)) is not None:
            raise ConfigError(lacking)
        report_to = config.report_to if ranks.is_first else "none"
        trackers = Trackers(report_to, config.project, name, folder.path, config.public_dict(), say=say)
        if (tokenizer := given.tokenizer) is None:
            tokenizer, changes = load_tokenizer_and_changes(config, config)
        else:
            changes = apply_settings(tokenizer, config, config)
        material = read_material(
            config,
            folder,
            tokenizer,
            ranks,
            console,
            train_dataset=given.train_dataset,
            eval_dataset=given.eval_dataset,
        )

        seed_everything(config.seed)  # what is drawn for the model must not depend on what was drawn for the data
        with out_of_memory_explained("loading", config, device):
            prepared = prepare_model(config, precision, device, tokenizer, changes, given.model, given.peft_config)
        own = recipe.on_model(prepared.model, prepared.undo)
        for line in (*prepared.says, *own, make_saveable(prepared.model)):
            if line:
                say(line)
        material.check_vocabulary(prepared.facts.vocabulary)
        if beyond := check_positions(prepared.model, material.longest_document):
            say(beyond)
        found = Opened(
            config=config,
            folder=folder,
            checkpoints=checkpoints,
            resume_from=resume_from,
            hub=hub,
            trackers=trackers,
            signals=signals,
            precision=precision,
            tokenizer=tokenizer,
            material=material,
            prepared=prepared,
            ranks=ranks,
            device=device,
            console=console,
            say=say,
        )
        yield found
    except BaseException as error:
        ranks.fail(error)  # at once: what follows may take its time, and others wait
        if isinstance(error, KeyboardInterrupt):
            # What an older run left in the folder is no progress of this one, unless this one resumes it.
            begun = folder.begun or config.resume_from_checkpoint
            kept = Checkpoints(folder.checkpoints, config).all() if begun else []
            step = found.run.trainee.progress.step if found and found.run else None
            left = what_is_kept(folder, kept, step, config.overwrite_output_dir)
            raise StoppedError(number_of(error), left) from None
        if isinstance(error, OSError) and (said := folder.in_words(error)):
            raise TrainingError(said) from error
        raise
    finally:
        if prepared:
            prepared.restore()
        folder.release()
        if trackers:
            trackers.finish(*((AT_ONCE,) if signals and signals.leave else ()))
