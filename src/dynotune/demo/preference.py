"""The demo's second half: the model that has learned to sort is moved to a stated preference, by `dynotune dpo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dynotune.demo.files import write_pairs
from dynotune.demo.task import VERBS, Item
from dynotune.errors import TrainingError

if TYPE_CHECKING:
    from dynotune.demo.score import Score

PAIRS = 3200
SHOWN = 3


def prefer(folder: Path, train: list[Item], held_out: list[Item], before: "Score", console: Console) -> "Score":
    """Write pairs and dpo.yaml, train by them, and show how far the answers moved.

    Args:
        folder: the demo's, where sft.yaml has trained.
        before: what the model that training begins with answers to `held_out`.

    Returns:
        What it answers afterwards.

    Raises:
        TrainingError: no more of the held-out words are sorted as preferred, which would be a defect of this installation.
    """
    from dynotune.config.dpo import DPOConfig
    from dynotune.config.load import load_config
    from dynotune.demo.score import score
    from dynotune.train.dpo import train_dpo

    pairs = [item for item in train if item.tells_apart][:PAIRS]
    unseen = [item for item in held_out if item.tells_apart]
    config = write_pairs(folder, pairs, unseen)
    console.print(
        f"\nThe preference: sorted letters shall fall, from j to a; reversing stays. {len(pairs):,} pairs whose rejected "
        f"answer rises, {len(unseen)} held-out ones.\n"
        f"The run: dynotune dpo --config {config}\n",
        highlight=False,
        soft_wrap=True,
    )
    result = train_dpo(load_config(config, into=DPOConfig), console=console)
    after = score(result.model, result.tokenizer, held_out)
    _show(console, before, after, _reward_accuracy(result.metrics), len(unseen))
    sort = VERBS[0]
    moved = after.of(sort)
    if moved.preferred <= before.of(sort).preferred:
        raise TrainingError(
            f"The model did not move: {moved.preferred} of {len(moved.items)} words are sorted as preferred. "
            "Please report this with `dynotune env`."
        )
    return after


def _reward_accuracy(metrics: list[dict[str, Any]]) -> float:
    """Of the last evaluation."""
    return float([row["eval_rewards/accuracies"] for row in metrics if "eval_loss" in row][-1])


def _show(console: Console, before: "Score", after: "Score", accuracy: float, pairs: int) -> None:
    sort, reverse = VERBS
    console.print()
    table = Table(title="Held-out items", title_justify="left")
    for column in ("asked", "before", "after", "preferred"):
        table.add_column(column, max_width=16, no_wrap=True)
    old, new = before.of(sort), after.of(sort)
    for item, was, answer in list(zip(new.items, old.answers, new.answers, strict=True))[:SHOWN]:
        style = "green" if answer == item.preferred else "red"
        table.add_row(item.question, was, f"[{style}]{answer}[/{style}]", item.preferred)
    console.print(table)
    kept, stays = before.of(reverse), after.of(reverse)
    console.print(
        f"\nSorted as preferred, of {len(new.items)} held-out words: "
        f"[bold]{old.preferred} before, {new.preferred} after[/bold]. "
        f"Reversed rightly, of {len(stays.items)}: {kept.right} before, {stays.right} after.\n"
        f"Reward accuracy on {pairs} held-out pairs: {accuracy:.1%}.\n",
        highlight=False,
        soft_wrap=True,
    )
