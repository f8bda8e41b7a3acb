"""What a person sees while a run goes on: one live line on a terminal, or a line for each log."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dynotune.say import sayer

IN_THE_FILE_ONLY = {"step", "epoch", "num_tokens", "label_tokens", "train_seconds", "entropy", "examples"}
IN_THE_FILE_ONLY |= {"processed_tokens_per_second", "hfu", "definitions", "share_of_tokens_saved"}
IN_THE_FILE_ONLY |= {"label_tokens_per_second", "tokens_per_second_per_device", "num_examples", "num_label_tokens"}
IN_THE_FILE_ONLY |= {"seconds_per_step", "wall_seconds", "goodput", "meter_microseconds_per_step", "peak_memory_gib"}
IN_THE_FILE_ONLY |= {"tokens_per_second", "mfu", "fill", "data_wait", "pairs_per_second"}
IN_THE_FILE_ONLY |= {f"{what}/{side}" for what in ("logps", "logits") for side in ("chosen", "rejected")}
"""Those of the last two lines are shown in words."""

IN_THE_FILE_ONLY_BEGIN = ("time/", "memory/", "gpu/", "host/", "wasted/", "ranks/")


@cache
def in_the_file_only(key: str) -> bool:
    """Whether a figure of metrics.jsonl stands on no line."""
    return key in IN_THE_FILE_ONLY or key.startswith(IN_THE_FILE_ONLY_BEGIN)


BAR = 8
WIDE = 130
"""Columns of a terminal from which on the live line has a bar and spells its words out."""


class ProgressDisplay:
    """A live line on a terminal; plain lines where the output is a file or `disable_tqdm` is set."""

    def __init__(self, console: Console, total_steps: int, done: int, off: bool) -> None:
        self.console, self.total = console, total_steps
        self.say = sayer(console)
        self.bar: Progress | None = None
        if console.is_terminal and not off:
            bar = [BarColumn(bar_width=BAR)] if console.width >= WIDE else []
            self.bar = Progress(
                *bar,
                MofNCompleteColumn(),
                TextColumn("{task.fields[words]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self.task = self.bar.add_task("training", total=total_steps, completed=done, words="")
            self.bar.start()

    def ends_at(self, number: int) -> None:
        """Whoever watches the run will end it there at the latest, whatever its plan holds."""
        self.total = number
        if self.bar:
            self.bar.update(self.task, total=number)

    def step(self, number: int) -> None:
        if self.bar:
            self.bar.update(self.task, completed=number)

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics.jsonl. On a terminal rows of training change the live line; others, such as evaluations,
        stand above it."""
        words = speed_words(row)
        if self.bar and words:
            self.bar.update(self.task, words=self._fitting(row))
            return
        parts = [f"{key} {_short(value)}" for key, value in row.items() if not in_the_file_only(key)]
        parts += [*words, *self._left(row)]
        self.say(f"step {row['step']:>{len(str(self.total))}}/{self.total}  {'  '.join(parts)}")

    def _fitting(self, row: Mapping[str, Any]) -> str:
        """What the live line has room for beside its count and the time left."""
        wide = self.console.width >= WIDE
        loss = [] if row.get("loss") is None else [f"loss {row['loss']:.{4 if wide else 3}f}"]
        room = self.console.width - 2 * len(str(self.total)) - len("/ ") - len(" left 10:00:00") - wide * (BAR + 1)
        return fitting([*loss, *speed_words(row, short=not wide)], room, "  " if wide else " ")

    def _left(self, row: Mapping[str, Any]) -> list[str]:
        """By the row's own seconds a step."""
        seconds = row.get("seconds_per_step")
        return [f"left {clock((self.total - row['step']) * seconds)}"] if seconds else []

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None


def speed_words(row: Mapping[str, Any], short: bool = False) -> list[str]:
    """How fast and how well the machine is used, the most important first; empty for a row that is not of training."""
    real, percent = ("", ".0f") if short else ("real ", ".1f")
    found = []
    if row.get("pairs_per_second"):
        found.append(f"{row['pairs_per_second']:,.1f} pairs/s")
    if row.get("tokens_per_second"):
        found.append(f"{row['tokens_per_second']:,.0f} {real}tok/s")
    found += [f"{name[short]} {100 * row[key]:{percent}} %" for key, name in SHARES.items() if row.get(key) is not None]
    held = row.get("peak_memory_gib", row.get("host/rss_gib"))
    if found and held is not None:
        found.append(f"{'' if short else 'memory '}{held:.1f} GiB")
    return found


SHARES = {"mfu": ("MFU", "MFU"), "fill": ("fill", "fill"), "data_wait": ("data wait", "wait")}
"""Shares, by their words and by short ones."""


def fitting(words: list[str], columns: int, between: str) -> str:
    """As many of `words` from the first one on as there is room for."""
    shown = ""
    for word in words:
        longer = f"{shown}{between}{word}" if shown else word
        if len(longer) > columns:
            break
        shown = longer
    return shown


def clock(seconds: float) -> str:
    """`1:02:03`, from a day on with days before it."""
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    text = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
