"""Promise: a person sees loss, real tokens/s and the time left; a file gets plain lines and no control sequences."""

import io

from rich.console import Console

from dynotune.train.progress import ProgressDisplay

ROW = {"step": 3, "epoch": 0.1, "loss": 1.25, "grad_norm": 0.5, "tokens_per_second": 1234.5, "num_tokens": 99}


def test_a_terminal_shows_a_bar_with_speed_and_time_left() -> None:
    screen = io.StringIO()
    display = ProgressDisplay(Console(file=screen, force_terminal=True, width=160), total_steps=10, done=0, off=False)
    for number in range(1, 4):
        display.step(number)
    display.log(ROW)
    assert display.bar is not None
    display.bar.refresh()
    display.stop()
    shown = screen.getvalue()
    for part in ("3/10", "loss 1.2500", "1,234 real tok/s", "left"):
        assert part in shown, part


def test_a_file_gets_lines_only() -> None:
    file = io.StringIO()
    display = ProgressDisplay(Console(file=file, width=40), total_steps=10, done=0, off=False)
    display.step(3)
    display.log(ROW)
    display.stop()
    assert file.getvalue() == "step  3/10  loss 1.25  grad_norm 0.5  tokens_per_second 1,234\n"


def test_it_can_be_switched_off() -> None:
    assert ProgressDisplay(Console(file=io.StringIO(), force_terminal=True), 10, 0, off=True).bar is None
