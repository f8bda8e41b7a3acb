"""A profile as Markdown, for an issue or a pull request: what the terminal shows, whole."""

from dynotune.profile.analysis.findings import Findings
from dynotune.profile.showing.shown import shown
from dynotune.show.markdown import escaped, fenced, table


def markdown(findings: Findings) -> str:
    one = shown(findings)
    parts = [f"### profile: {escaped(one.title)}", f"**{escaped(one.bottleneck.text)}**"]
    parts.append(" · ".join(escaped(text) for text in one.figures))
    if one.grid.rows:
        parts.append(table(one.grid))
    parts += ["#### Found", "\n".join(f"- {escaped(line.text)}" for line in one.found)]
    parts.append("#### What would help")
    for i, (line, command) in enumerate(one.remedies, 1):
        parts.append(f"{i}. {escaped(line.text)}")
        parts += [fenced(command)] if command else []
    parts += ["\n".join(f"- {escaped(line.text)}" for line in one.ruled_out)] if one.ruled_out else []
    parts += ["#### Expected", "\n".join(f"- {escaped(line.text)}" for line in one.expected)] if one.expected else []
    parts += (
        ["#### Where things lie", "\n".join(f"- {escaped(text)}" for text in one.placement)] if one.placement else []
    )
    parts += ["#### Not known", "\n".join(f"- {escaped(text)}" for text in one.unknown)] if one.unknown else []
    if one.kernels.rows:
        parts.append(table(one.kernels))
    return "\n\n".join(parts) + "\n"
