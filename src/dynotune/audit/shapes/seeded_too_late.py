"""A program sets its seed behind what it draws: adapters, new heads, rows that are divided."""

import re
from collections.abc import Callable, Iterator, Sequence

from dynotune.audit.facts.script import Call, Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_SEEDS = frozenset({"set_seed", "manual_seed", "seed_everything", "manual_seed_all", "enable_full_determinism"})
_OTHERS = frozenset({"random.seed", "numpy.random.seed"})
_HEADS = re.compile(
    r"For(?:Sequence|Token|Image|Audio)Classification\.from_pretrained$|ForMultipleChoice\.from_pretrained$"
)


def seeded_too_late(script: Script, near: Sequence[Script], draws_rows: Callable[[Call], bool]) -> Iterator[Said]:
    """near: the whole program."""
    calls = [call for one in near for call in one.calls]
    if any(_last(call) in _GENERATORS for call in calls):
        return
    seeds = list(_seeds(calls))
    if not seeds or any(call.place.file != script.file for call in seeds):
        return
    if len({_room(call) for call in seeds}) > 1 or any(_in_a_branch(call) for call in seeds):
        return
    first = min(seeds, key=lambda call: call.place.line)
    drawn = [
        (call, what)
        for call in script.calls
        if _room(call) == _room(first) and not _in_a_branch(call) and call.place.line < first.place.line
        for what in (_draws(call, draws_rows),)
        if what
    ]
    if not drawn:
        return
    whats = " and ".join(dict.fromkeys(what for _, what in drawn))
    yield Finding(
        f"`{first.name.rpartition('.')[2]}` stands behind what it is to seed: {whats} drawn before it, at line"
        f" {drawn[0][0].place.line}, and differ from run to run.",
        place=first.place,
        evidence=Evidence(Level.TEXT, {"drawn": whats, "drawn at line": drawn[0][0].place.line}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Seed first, before the model is made and the rows are divided.",
            accuracy="Another draw, which can be drawn again.",
        ),
        also=tuple(call.place for call, _ in drawn),
    )


_GENERATORS = frozenset({"Generator", "default_rng", "RandomState"})


_WORKS = frozenset({"from_pretrained", "get_peft_model", "train_test_split", "load_dataset", "backward", "train"})
"""What a function that only seeds does not call."""


def _last(call: Call) -> str:
    return call.name.rpartition(".")[2]


def _seeds(calls: Sequence[Call]) -> Iterator[Call]:
    """Calls that seed, and those of the project's own functions that do: where it is done, not how."""
    plain = [call for call in calls if _is_seed(call)]
    busy = {_room(call)[-1] for call in calls if _room(call) and _last(call) in _WORKS}
    inside = {_room(call)[-1] for call in plain if _room(call)} - busy
    inside &= {_last(call) for call in calls}
    yield from (call for call in calls if _last(call) in inside and not (_room(call) and _room(call)[-1] in inside))
    yield from (call for call in plain if _last(call) not in inside and not (_room(call) and _room(call)[-1] in inside))


def _is_seed(call: Call) -> bool:
    return call.name.rpartition(".")[2] in _SEEDS or call.name in _OTHERS


def _draws(call: Call, draws_rows: Callable[[Call], bool]) -> str:
    if call.name == "peft.get_peft_model":
        return "the adapters' first weights are"
    if _HEADS.search(call.name) and "num_labels" in call.arguments:
        return "the new head's first weights are"
    return "the rows' parts are" if call.name.endswith("train_test_split") and draws_rows(call) else ""


def _room(call: Call) -> tuple[str, ...]:
    return tuple(around.name for around in call.around if around.kind in ("function", "class"))


def _in_a_branch(call: Call) -> bool:
    return any(around.kind in ("for", "while", "if") for around in call.around)
