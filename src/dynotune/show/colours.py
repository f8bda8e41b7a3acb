"""Colours of pictures and pages, on light ground and on dark: told apart by people who see fewer colours, and legible.

After Okabe and Ito, "Color Universal Design" (2008), darkened or lightened until each has a contrast of 3 to its ground.
"""

LIGHT = ("#0072b2", "#c75300", "#00845f", "#a6518a", "#7a6200", "#4b4b8f")
DARK = ("#56b4e9", "#f0883e", "#2bc89b", "#e39cc8", "#f0e442", "#b3b3f0")
"""Of curves and arms, in order."""

PAGE_LIGHT = {
    "page": "#ffffff", "text": "#1f2937", "quiet": "#5b6472", "rule": "#d5dae1", "ground": "#f4f6f8",
    "good": "#00684b", "bad": "#b02a00", "doubt": "#7a5a00",
}  # fmt: skip
PAGE_DARK = {
    "page": "#111827", "text": "#e5e7eb", "quiet": "#a3acb9", "rule": "#374151", "ground": "#1b2433",
    "good": "#2bc89b", "bad": "#ff9e70", "doubt": "#f0d442",
}  # fmt: skip
"""Of a page, by use."""


def variables() -> str:
    """As CSS variables: light, and dark where the reader's system asks for it."""
    light = _declared(PAGE_LIGHT, LIGHT)
    dark = _declared(PAGE_DARK, DARK)
    return f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _declared(page: dict[str, str], series: tuple[str, ...]) -> str:
    named = {**page, **{f"c{i}": colour for i, colour in enumerate(series)}}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())
