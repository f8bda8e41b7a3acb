"""The reference page of speed-ups, from their declarations."""

from collections.abc import Iterator, Mapping

from dynotune.config.fates.table import SFT_FATES
from dynotune.speedups.contract import Kind, Scope, Speedup

KINDS = {
    Kind.EXACT: "the same mathematics",
    Kind.NUMERIC: "intermediates in lower precision than the plain path has",
    Kind.BEHAVIOURAL: "another result",
}

SCOPES = {
    Scope.PLAN: "how a step is laid out",
    Scope.MODEL: "modules of the model",
    Scope.STEP: "what stands around forward and backward",
    Scope.PROCESS: "the process",
}


def speedup_page(known: Mapping[str, Speedup], written: str) -> str:
    """Every speed-up: what it does, its settings, what it needs, which keys ask for it and what its proof looks for.

    known: by name, in the order of installation. written: the comment that says who wrote the page.
    """
    lines = [
        "# Speed-ups one by one",
        "",
        written,
        "How they are chosen, proved and taken out: [Speed-ups](../speedups.md). They stand in the order in which they are",
        "installed.",
        "",
        "| name | kind | default | changes | one of |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in known.items():
        slot = f"`{one.slot}`" if one.slot else ""
        default = f"by `{one.follows}`" if one.follows else one.default
        lines.append(f"| [`{name}`](#{name}) | {one.kind} | {default} | {SCOPES[one.scope]} | {slot} |")
    for name, one in known.items():
        lines += ["", *_entry(name, one, known)]
    return "\n".join(lines) + "\n"


def _entry(name: str, one: Speedup, known: Mapping[str, Speedup]) -> Iterator[str]:
    yield from (f"## `{name}` {{#{name}}}", "", one.summary, "")
    default = f"It follows `{one.follows}` and is no switch" if one.follows else f"Default: `{one.default}`"
    yield f"- Kind: {one.kind}, {KINDS[one.kind]}. {default}."
    if one.requires:
        yield f"- Needs {_listed(one.requires)}."
    if one.package is not None:
        yield f"- Needs the package `{one.package}`, which is tried on this machine before."
    others = [other for other, it in known.items() if it.slot == one.slot and other != name and one.slot is not None]
    if others:
        yield f"- One of the slot `{one.slot}` runs: this one, or {_listed(others)}."
    rivals = sorted({*one.conflicts, *(other for other, it in known.items() if name in it.conflicts)})
    if rivals:
        yield f"- Not beside {_listed(rivals)}."
    keys = asking_keys(name)
    if keys:
        yield f"- Besides `speedups: {{{name}: on}}`, these keys may ask for it: {_listed(keys)}."
    if one.proof:
        yield f"- Proof: {one.proof}"


def asking_keys(name: str) -> list[str]:
    """TRL's and transformers' fields, and ours, that may ask for a speed-up of this name."""
    ours = [name] if name == "packed_execution" else []
    return ours + sorted(key for key, fate in SFT_FATES.items() if name in fate.speedups)


def _listed(names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
