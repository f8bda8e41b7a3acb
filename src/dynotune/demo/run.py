"""`dynotune demo`: a tiny model learns a task and then a preference on this CPU, by the path that every run takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dynotune.demo.files import write_files
from dynotune.demo.preference import prefer
from dynotune.demo.task import LONGEST, SHORTEST, VERBS, Item, make_items
from dynotune.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from dynotune.demo.score import Score

TRAIN_ITEMS, HELD_OUT_ITEMS, SEED = 4320, 200, 0
SHOWN = 6


def run_demo(output_dir: Path | None) -> int:
    """Write the demo's files, train, and show what was learned. Everything lies in `output_dir` afterwards.

    Args:
        output_dir: where to write; must be new, empty, or an earlier demo. Default: `runs/demo` in the current folder.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: the folder holds something else.
        TrainingError: the model did not get better or did not move to the preference: a defect of this installation.
    """
    console = Console()
    folder = output_dir or Path("runs") / "demo"
    if folder.exists() and any(folder.iterdir()) and not (folder / "sft.yaml").is_file():
        raise ConfigError(f"{folder} holds something that is not a demo. Give another folder by `--output_dir`.")
    train, held_out = make_items(TRAIN_ITEMS, HELD_OUT_ITEMS, SEED)
    config = write_files(folder, train, held_out)
    console.print(
        f"The task: {' or '.join(VERBS)} the letters of a word of {SHORTEST} to {LONGEST} letters. {len(train):,} "
        f"training items; {len(held_out)} held-out items, whose words are in none of them.\n"
        "The model: a Llama of two layers with random weights. Nothing is downloaded.\n"
        f"The run: dynotune sft --config {config}\n",
        highlight=False,
        soft_wrap=True,
    )
    with _one_thread():
        before, after, run = _train(config, held_out, console)
        _show(console, run, before, after)
        _must_be_better(before, after)
        prefer(folder, train, held_out, after, console)
    _try_next(console, folder)
    return 0


def _must_be_better(before: "Score", after: "Score") -> None:
    if after.accuracy <= before.accuracy:
        raise TrainingError(
            f"The model did not learn: {after.right} of {len(after.items)} right. Please report this with `dynotune env`."
        )


def _train(config: Path, held_out: list[Item], console: Console) -> "tuple[Score, Score, Path]":
    from dynotune.config.load import load_config
    from dynotune.demo.score import score
    from dynotune.train.sft import train_sft

    scores: list[Score] = []
    result = train_sft(load_config(config, {}), callbacks=[_score_at_start(held_out, scores)], console=console)
    return scores[0], score(result.model, result.tokenizer, held_out), result.folder


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in sft.yaml, where the reason stands
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _score_at_start(held_out: list[Item], scores: "list[Score]") -> "TrainerCallback":
    """A callback that asks the held-out items of the very weights that the run begins with."""
    from transformers import TrainerCallback

    from dynotune.demo.score import score

    class ScoreAtStart(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **run: Any) -> None:
            scores.append(score(run["model"], run["processing_class"], held_out))

    return ScoreAtStart()


def _show(console: Console, run: Path, before: "Score", after: "Score") -> None:
    console.print()
    table = Table(title="Held-out items", title_justify="left")
    for column in ("asked", "before", "after", "right answer"):
        table.add_column(column, max_width=16, no_wrap=True)
    for index in _sample(before.items):
        item, answer = before.items[index], after.answers[index]
        style = "green" if answer == item.answer else "red"
        table.add_row(item.question, before.answers[index], f"[{style}]{answer}[/{style}]", item.answer)
    console.print(table)
    total = len(after.items)
    console.print(
        f"\nExact answers on {total} held-out items: [bold]{before.right} ({before.accuracy:.1%}) before, "
        f"{after.right} ({after.accuracy:.1%}) after.[/bold]\n\n"
        f"The run is in {run}: model/ loads in transformers, loss.svg is the curve above, README.md the model's card.",
        highlight=False,
        soft_wrap=True,
    )


def _try_next(console: Console, folder: Path) -> None:
    sft = folder / "sft.yaml"
    console.print(
        "Try next:\n"
        f"  dynotune sft --config {sft} --output_dir {folder / 'again'} --learning_rate 1e-3\n"
        f"  dynotune sft --config {sft} --output_dir {folder / 'sequential'} --train_sampling_strategy sequential\n"
        f"  dynotune dpo --config {folder / 'dpo.yaml'} --output_dir {folder / 'nearer'} --beta 0.5\n"
        f"  dynotune prepare --config {sft} --show 3\n"
        "  dynotune sft --help",
        highlight=False,
        soft_wrap=True,
    )


def _sample(items: list[Item]) -> list[int]:
    """The first few items of each verb, in turn."""
    by_verb = [[i for i, item in enumerate(items) if item.verb == verb] for verb in VERBS]
    return [indices[k] for k in range(SHOWN // len(VERBS)) for indices in by_verb]
