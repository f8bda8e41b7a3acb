"""Releases of packages that a comment or a document lists as installed: `# torch 2.6.0, transformers 4.52.4`. One release by
itself may be told for another reason."""

import re
from collections.abc import Iterator

_RELEASE = (
    r"(?<![\w./-])(?P<{0}>torch|transformers|trl|peft|accelerate|datasets|deepspeed|flash-attn|bitsandbytes|axolotl|unsloth"
    r"|llama-?factory|liger-kernel|xformers|lightning)\s(?:==\s?)?v?(?P<{1}>\d+\.\d+(?:\.\w+){{0,3}})(?![\w.]*\+)"
)
_RELEASES = re.compile(
    rf"{_RELEASE.format('one', 'of_one')}(?=,? (?:and )?{_RELEASE.format('next', 'of_next')})"
    rf"|(?<=, ){_RELEASE.format('last', 'of_last')}"
)
_OF_OTHERS = re.compile(
    r"\b(?:bug|broken|breaks?|fail\w*|before|since|until|older|newer|or|from|after|old|was|not)\b", re.IGNORECASE
)


def releases_told(file: str, text: str) -> Iterator[tuple[str, str, int]]:
    """Package, release and line of each that a comment or a document lists."""
    if file.endswith((".py", ".ipynb", ".json")):
        return
    plain = not file.endswith((".md", ".rst")) and "readme" not in file.lower()
    for number, line in enumerate(text.split("\n"), 1):
        said = line.partition("#")[2] if plain else line
        if len(said) > 400 or "." not in said or _OF_OTHERS.search(said):
            continue
        found = list(_RELEASES.finditer(said))
        for one in found if len(found) > 1 else ():
            name = one["one"] or one["last"]
            release = one["of_one"] or one["of_last"]
            yield (
                re.sub(r"[-_.]+", "-", name).lower().replace("llama-factory", "llamafactory"),
                release.rstrip("."),
                number,
            )
