"""Loss curves as text for a terminal.

Training is drawn in braille (2 x 4 dots a character), evaluations as marks on top, so that the curves can be told
apart without colour too. Own code because the one maintained terminal plotter changed its whole interface with its last
major version, and this is all that is needed of it.
"""

from rich.text import Text

from dynotune.report.curves import Axes, Curve, axes_for
from dynotune.show.ticks import tick_label

MARKS = "●◆▲■★"
STYLES = ("yellow", "magenta", "green", "red", "blue")
TRAIN_STYLE = "cyan"
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of the braille dot at [column][row] (Unicode block U+2800)."""


def loss_curve(curves: list[Curve], width: int = 80, height: int = 14) -> Text:
    """The curves as lines of text: `height` rows of plot, the step axis, and a legend with first and last loss.

    Args:
        curves: from `read_curves`; none gives one sentence that says so.
        width: columns in all, at least 30.
        height: rows of the plot without axis and legend, at least 4.
    """
    if not curves:
        return Text("no loss was logged")
    axes = axes_for(curves, x_ticks=max(2, width // 16), y_ticks=max(2, height // 3))
    labels = {round((1 - axes.y(tick)) * (height - 1)): tick_label(tick) for tick in axes.y_ticks}
    margin = max(len(label) for label in labels.values())
    columns = max(10, width - margin - 2 - len("  step"))
    cells = _draw(curves, axes, columns, height)

    text = Text(no_wrap=True)
    for row in range(height):
        text.append(f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}", style="dim")
        for column in range(columns):
            character, style = cells.get((row, column), (" ", ""))
            text.append(character, style=style)
        text.append("\n")
    text.append(_step_axis(axes, columns, margin), style="dim")
    text.append("\n")
    text.append_text(_legend(curves, margin))
    return text


def _draw(curves: list[Curve], axes: Axes, columns: int, height: int) -> dict[tuple[int, int], tuple[str, str]]:
    cells: dict[tuple[int, int], tuple[str, str]] = {}
    dots: dict[tuple[int, int], int] = {}
    for curve in curves:
        if not curve.is_train:
            continue
        # Dot coordinates: x to the right, y downwards.
        points = [
            (
                round(axes.x(step) * (2 * columns - 1)),
                round((1 - axes.y(loss)) * (height - 1) * 4) + 2,
            )
            for step, loss in zip(curve.steps, curve.losses, strict=True)
        ]
        for start, end in zip(points, points[1:] or points, strict=False):
            for x, y in _line(start, end):
                row, column = min(y // 4, height - 1), x // 2
                dots[row, column] = dots.get((row, column), 0) | DOTS[x % 2][y % 4]
    for place, bits in dots.items():
        cells[place] = (chr(0x2800 + bits), TRAIN_STYLE)
    for index, curve in enumerate(c for c in curves if not c.is_train):
        for step, loss in zip(curve.steps, curve.losses, strict=True):
            row, column = round((1 - axes.y(loss)) * (height - 1)), round(axes.x(step) * (columns - 1))
            cells[row, column] = (MARKS[index % len(MARKS)], STYLES[index % len(STYLES)])
    return cells


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return [(round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count)) for i in range(count + 1)]


def _step_axis(axes: Axes, columns: int, margin: int) -> str:
    line, numbers = ["─"] * columns, [" "] * (columns + margin + 8)
    occupied = -1
    for tick in axes.x_ticks:
        column = round(axes.x(tick) * (columns - 1))
        label = tick_label(tick)
        start = max(0, min(margin + 2 + column - len(label) // 2, margin + 2 + columns - len(label)))
        if start <= occupied:
            continue
        line[column] = "┬"
        numbers[start : start + len(label)] = label
        occupied = start + len(label)
    return f"{'':>{margin}} └{''.join(line)}\n{''.join(numbers).rstrip()}  step"


def _legend(curves: list[Curve], margin: int) -> Text:
    text = Text(no_wrap=True)
    evaluations = 0
    for curve in curves:
        if curve.is_train:
            sign, style = "⠤", TRAIN_STYLE
        else:
            sign, style = MARKS[evaluations % len(MARKS)], STYLES[evaluations % len(STYLES)]
            evaluations += 1
        text.append(" " * (margin + 2))
        text.append(sign, style=style)
        text.append(f" {curve.name} loss  {curve.losses[0]:.4g} → {curve.losses[-1]:.4g}")
        if curve.not_finite:
            text.append(f"  ({curve.not_finite} not finite, not drawn)")
        text.append("\n")
    text.rstrip()
    return text
