"""A result as Markdown, for a pull request: what the terminal shows, whole, with the command below it."""

from collections.abc import Sequence

from dynotune.bench.showing.shown import shown
from dynotune.config.secrets import masked
from dynotune.printable import printable
from dynotune.results.result import Result
from dynotune.show.markdown import escaped, fenced, table

COMMAND = 2000
"""Characters of a command that are shown."""


def markdown(result: Result, files: Sequence[str] = ()) -> str:
    """files: where the whole result lies, by name."""
    one = shown(result)
    parts = [f"### bench: {escaped(one.operating_point)}"]
    if one.withdrawn:
        parts.append(f"> **{escaped(one.withdrawn)}**")
    parts.append(f"**{escaped(one.sentence)}**")
    parts.append(" · ".join(escaped(text) for text in one.conditions))
    parts.append(table(one.grid))
    lines = [line.text for line in (*one.said, *one.expectations)]
    lines += [one.engagement.text] if one.engagement is not None else []
    lines += [*one.differences, *(f"note: {note}" for note in one.notes), *([one.sample] if one.sample else [])]
    parts.append("\n".join(f"- {escaped(text)}" for text in lines))
    commit = f"commit {escaped(printable(result.commit, 40))}, " if result.commit else ""
    parts.append(
        f"{escaped(printable(result.name, 100))}, {printable(result.date[:10])}, {commit}"
        f"definitions {result.definitions}, seed {result.seed}"
    )
    parts.append(fenced(printable(masked(result.command), COMMAND)))
    if files:
        parts.append("Whole result: " + ", ".join(escaped(printable(file, 200)) for file in files))
    return "\n\n".join(part for part in parts if part) + "\n"
