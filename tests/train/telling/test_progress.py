"""Promise: a person sees loss, real tokens/s and the time left; a file gets plain lines and no control sequences."""

import io

import pytest
from rich.console import Console

from dynotune.train.telling.progress import ProgressDisplay

ROW = {"step": 3, "epoch": 0.1, "loss": 1.25, "grad_norm": 0.5, "tokens_per_second": 1234.5, "num_tokens": 99}
ROW |= {"mfu": 0.4123, "fill": 0.98, "data_wait": 0.004, "peak_memory_gib": 63.1, "seconds_per_step": 600.0}
ROW |= {"time/host": 0.1}


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
    for part in ("3/10", "loss 1.2500", "1,234 real tok/s", "MFU 41.2 %", "fill 98.0 %", "data wait 0.4 %", "left"):
        assert part in shown, part
    assert "memory 63.1 GiB" in shown
    assert "step  3/10" not in shown, "one line, which changes"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140])
def test_the_live_line_is_one_line_at_any_width(width: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    display = ProgressDisplay(console, total_steps=12_000, done=0, off=False)
    display.step(9_999)
    display.log({**ROW, "step": 9_999})
    assert display.bar is not None
    (line,) = console.render_lines(display.bar.get_renderable(), pad=False)
    text = "".join(segment.text for segment in line).rstrip()
    display.stop()
    assert len(text) <= width
    assert "9999/12000" in text
    assert "…" not in text, "what has no room is left out, not cut"
    wide = ("loss 1.2500", "1,234 real tok/s", "MFU 41.2 %", "fill 98.0 %", "data wait 0.4 %", "memory 63.1 GiB")
    narrow = ("loss 1.250", "1,234 tok/s", "MFU 41 %", "fill 98 %", "wait 0 %", "63.1 GiB")
    held = {40: 1, 60: 3, 80: 5, 100: 6, 120: 6, 140: 6}[width]
    assert [word in text for word in (wide if width >= 130 else narrow)] == [i < held for i in range(6)]


def test_an_evaluation_stands_above_the_live_line() -> None:
    screen = io.StringIO()
    display = ProgressDisplay(Console(file=screen, force_terminal=True, width=100), total_steps=10, done=0, off=False)
    display.log({"step": 3, "epoch": 0.1, "eval_loss": 1.5, "eval_seconds": 0.2})
    display.stop()
    assert "step  3/10  eval_loss 1.5" in screen.getvalue()


def test_a_file_gets_lines_only() -> None:
    file = io.StringIO()
    display = ProgressDisplay(Console(file=file, width=40), total_steps=10, done=0, off=False)
    display.step(3)
    display.log(ROW)
    display.stop()
    assert file.getvalue() == (
        "step  3/10  loss 1.25  grad_norm 0.5  1,234 real tok/s  MFU 41.2 %  fill 98.0 %  data wait 0.4 %"
        "  memory 63.1 GiB  left 1:10:00\n"
    )


def test_figures_of_ranks_stand_in_the_file_only() -> None:
    file = io.StringIO()
    display = ProgressDisplay(Console(file=file, width=200), total_steps=10, done=0, off=False)
    display.log({**ROW, "ranks/host_rss_gib_min": 0.4461})
    assert "ranks/" not in file.getvalue()


def test_it_can_be_switched_off() -> None:
    assert ProgressDisplay(Console(file=io.StringIO(), force_terminal=True), 10, 0, off=True).bar is None
