"""What a rule is: `dynotune rule CODE`, and its page of the documentation. Both are the same Markdown."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.finding import Level
from dynotune.audit.rule import FAMILIES, Example, Rule

LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".json": "json5", ".py": "sage", ".sh": "bash", ".toml": "toml"}
"""By the name's ending. `sage` is a name that highlighters have for Python, and that no tool takes for the project's own:
its tests import what the documentation's Python imports, and formatters would lay out examples that stand as they are."""


def page(rule: Rule) -> str:
    """Markdown, with both examples."""
    told = rule.page
    lines = [
        f"# {rule.code}: {rule.name}",
        "",
        rule.summary,
        "",
        f"*{FAMILIES[rule.code[:3]]}; {rule.group}; asked about each {rule.subject}*",
        "",
        "## What it is",
        "",
        told.what,
        "",
        "## Why it matters",
        "",
        told.why,
        "",
        "## How it is detected",
        "",
        told.detected,
        "",
        "## How to see that it is so",
        "",
        told.proven,
        "",
        "## When it may be meant so",
        "",
        *(f"- {reason}" for reason in told.deliberate),
        "",
        f"Then say it where it stands: `# dynotune: ignore[{rule.code}] the reason, until 2027-01-31`",
        "(the day is optional). [How findings are suppressed](../audit.md#suppressing-a-finding).",
    ]
    if rule.formerly:
        lines += ["", f"Takes the place of {', '.join(rule.formerly)}, whose codes mean this rule now."]
    if rule.former_names:
        lines += ["", f"Means this rule, too: {', '.join(f'`{name}`' for name in rule.former_names)}."]
    bad = [("Found here", rule.bad), *(("Found here too", one) for one in rule.also_bad)]
    for title, example in (*bad, ("Not found here", rule.good)):
        if example is not None:
            lines += ["", f"## {title}", *_files(example)]
    if told.sources:
        lines += ["", "## Sources", "", *(f"- {source}" for source in told.sources)]
    return "\n".join(lines).rstrip() + "\n"


def _files(example: Example) -> Iterator[str]:
    for name, text in example.files.items():
        language = LANGUAGES.get(PurePosixPath(name).suffix, "text")
        fence = "````" if "```" in text else "```"
        yield from ("", f"`{name}`:", "", f"{fence}{language}", text.rstrip("\n"), fence)


LEVELS = {
    Level.TEXT: "what stands in a file",
    Level.RESOLVED: "what a configuration comes to with its defaults, or what data holds",
    Level.PROBED: "tried out on this machine",
    Level.PROFILED: "seen in a profile or the record of a run",
    Level.MEASURED: "measured here in pairs, by `dynotune bench`",
}
