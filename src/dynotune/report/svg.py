"""Loss curves as one SVG file: no scripts, no fonts to load, legible on light and dark pages."""

from html import escape
from pathlib import Path

from dynotune.report.curves import Axes, Curve, axes_for
from dynotune.show.colours import DARK, LIGHT
from dynotune.show.ticks import tick_label

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 44, 52


def svg_curves(curves: list[Curve], title: str, unit: str) -> str:
    """Lines over steps as a picture of a page, whose style has its classes. The axis begins at 0."""
    return _svg(curves, title, unit, on_page=True, marks=False)


def svg_loss_curve(curves: list[Curve], title: str = "loss", *, on_page: bool = False) -> str:
    """A self-contained SVG document with training and evaluation loss over steps.

    on_page: the picture stands in a page, whose style has its classes.

    Raises:
        ValueError: there is no curve to draw.
    """
    return _svg(curves, title, "loss", on_page=on_page, marks=True)


def _svg(curves: list[Curve], title: str, of: str, *, on_page: bool, marks: bool) -> str:
    """marks: evaluations are points of their own, each with a mark."""
    if not curves:
        raise ValueError("no curve to draw: no loss was logged")
    axes = axes_for(curves, x_ticks=6, y_ticks=5, from_zero=of != "loss")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
        *([] if on_page else [f"<style>{_style(len(curves))}</style>"]),
        *([] if on_page else [f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>']),
        f'<text x="{LEFT - 8}" y="26.5" text-anchor="end">{escape(of)}</text>',
        *_grid(axes),
    ]
    for index, curve in enumerate(curves):
        parts += _curve(curve, index, axes, marks)
    parts += _legend(curves)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def write_svg_loss_curve(curves: list[Curve], path: Path, title: str = "loss") -> None:
    path.write_text(svg_loss_curve(curves, title), encoding="utf-8")


def _style(curves: int) -> str:
    def colours(page: str, text: str, grid: str, strokes: tuple[str, ...]) -> str:
        rules = [f".page{{fill:{page}}}", f"text{{fill:{text}}}", f".grid{{stroke:{grid}}}"]
        for index in range(curves):
            colour = strokes[index % len(strokes)]
            rules.append(f".s{index}{{stroke:{colour}}}.f{index}{{fill:{colour}}}")
        return "".join(rules)

    return (
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.grid{stroke-width:1}"
        + colours("#ffffff", "#374151", "#e5e7eb", LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + colours("#111827", "#d1d5db", "#374151", DARK)
        + "}"
    )


def _x(axes: Axes, step: float) -> float:
    return LEFT + axes.x(step) * (WIDTH - LEFT - RIGHT)


def _y(axes: Axes, loss: float) -> float:
    return HEIGHT - BOTTOM - axes.y(loss) * (HEIGHT - TOP - BOTTOM)


def _grid(axes: Axes) -> list[str]:
    parts = []
    for tick in axes.y_ticks:
        y = _y(axes, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_label(tick)}</text>')
    for tick in axes.x_ticks:
        x = _x(axes, tick)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tick_label(tick)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">step</text>')
    return parts


def _curve(curve: Curve, index: int, axes: Axes, marks: bool) -> list[str]:
    points = [(_x(axes, s), _y(axes, v)) for s, v in zip(curve.steps, curve.losses, strict=True)]
    parts = [f'<polyline class="line s{index}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>']
    if (marks and not curve.is_train) or len(points) == 1:
        parts += [f'<circle class="f{index}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
    return parts


def _legend(curves: list[Curve]) -> list[str]:
    parts, x = [], float(LEFT)
    for index, curve in enumerate(curves):
        label = f"{curve.name} {tick_label(curve.losses[-1])}"
        if curve.not_finite:
            label += f" ({curve.not_finite} not finite)"
        parts.append(f'<line class="line s{index}" x1="{x:.1f}" x2="{x + 18:.1f}" y1="22" y2="22"/>')
        parts.append(f'<text x="{x + 24:.1f}" y="26.5">{escape(label)}</text>')
        # Text cannot be measured here: 7.2 px a character is DejaVu Sans, the widest of the fonts named above.
        x += 24 + 7.8 * len(label) + 22
    return parts
