"""What a person sees while a run goes on: a bar with loss, real tokens/s and time left, or a line for each log."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dynotune.say import sayer

IN_THE_FILE_ONLY = {"step", "epoch", "num_tokens", "label_tokens", "train_seconds", "entropy", "examples"}
IN_THE_FILE_ONLY |= {"processed_tokens_per_second", "hfu", "definitions", "share_of_tokens_saved"}
IN_THE_FILE_ONLY |= {f"{what}/{side}" for what in ("logps", "logits") for side in ("chosen", "rejected")}


class ProgressDisplay:
    """A live bar on a terminal; plain lines where the output is a file or `disable_tqdm` is set."""

    def __init__(self, console: Console, total_steps: int, done: int, off: bool) -> None:
        self.console, self.total = console, total_steps
        self.say = sayer(console)
        self.bar: Progress | None = None
        if console.is_terminal and not off:
            self.bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self.task = self.bar.add_task("training", total=total_steps, completed=done, note="")
            self.bar.start()

    def step(self, number: int) -> None:
        if self.bar:
            self.bar.update(self.task, completed=number)

    def log(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics.jsonl."""
        note = f"loss {row['loss']:.4f}" if row.get("loss") is not None else ""
        if row.get("tokens_per_second"):
            note += f"  {row['tokens_per_second']:,.0f} real tok/s"
        if self.bar:
            self.bar.update(self.task, note=note)
        shown = {k: v for k, v in row.items() if k not in IN_THE_FILE_ONLY}
        text = "  ".join(f"{k} {_short(v)}" for k, v in shown.items())
        self.say(f"step {row['step']:>{len(str(self.total))}}/{self.total}  {text}")

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
