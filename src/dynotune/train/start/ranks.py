"""What a run of several ranks does once for all of them: its folder, and the checkpoint that it goes on from."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dynotune.config.whole import WholeConfig
from dynotune.parallel.group import RankGroup
from dynotune.parallel.ranks import Ranks
from dynotune.train.checkpoints.checkpoints import Checkpoints
from dynotune.train.checkpoints.contents import read_state
from dynotune.train.checkpoints.differences import with_batch_of
from dynotune.train.folder.run_folder import RunFolder

Config = TypeVar("Config", bound=WholeConfig)


def open_folder(config: WholeConfig, ranks: Ranks) -> RunFolder:
    """The run folder, which the first rank makes and locks; others write nothing there but their own logs."""
    folder = None
    if ranks.is_first:
        folder = RunFolder.open(
            config.output_dir, config.overwrite_output_dir, config.resume_from_checkpoint, config.method.command
        )
    path = Path(ranks.from_first(None if folder is None else str(folder.path)))
    if isinstance(ranks, RankGroup):
        ranks.output.keep_in(path / "logs")
        checkpoints = Checkpoints(path / "checkpoints", config)
        ranks.way_back = lambda: _way_back(checkpoints)
    return folder or RunFolder(path, writes=False)


def go_on_from(
    config: Config, checkpoints: Checkpoints, ranks: Ranks, say: Callable[[str], None]
) -> tuple[Config, Path | None]:
    """The checkpoint to go on from, where one was asked for, and the configuration with its examples a step: a run goes on
    with the steps that it was planned with.

    The first rank looks: looking may put aside what a crash left half done.
    """
    asked = config.resume_from_checkpoint
    if not asked:
        return config, None
    checkpoint = Path(ranks.from_first(str(checkpoints.find(asked)) if ranks.is_first else None))
    examples = read_state(checkpoint)["plan"]["examples_per_step"]
    given = "global_batch_size" in config.model_fields_set
    config, sentence = with_batch_of(config, checkpoint, examples, given, ranks.world)
    if sentence:
        say(sentence)
    return config, checkpoint


def _way_back(checkpoints: Checkpoints) -> str:
    found = [] if checkpoints.only_model else checkpoints.all()
    if not found:
        return " No checkpoint was written: the run starts again."
    return f" Go on from {found[-1]} with `resume_from_checkpoint: true`, on as many processes or others."
