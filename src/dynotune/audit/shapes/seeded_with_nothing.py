"""A program that would seed, and whose configuration gives it no seed; and a promise of equal runs that adapters break."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import NOT_SO

_SEEDS = frozenset({"set_seed", "manual_seed", "seed_everything", "manual_seed_all", "enable_full_determinism"})
_OTHERS = frozenset({"random.seed", "numpy.random.seed"})
_PROMISED = re.compile(
    r"\breproduc\w+|\b(?:fully|everything is|all|runs are) seeded\b|\bdeterministic\w*|\bbit[- ](?:for[- ]bit|identical)"
    r"|\bsame (?:adapters?|weights|results?|model|numbers|losses|curve)\b",
    re.IGNORECASE,
)


def seeded_with_nothing(near: Sequence[Script], project: Project, drawn: Sequence[Call]) -> Iterator[Said]:
    """`if cfg.seed is not None: set_seed(cfg.seed)`, and `seed: null`. near: the whole program; drawn: what needs one."""
    seeds = [
        call for one in near for call in one.calls if call.name.rpartition(".")[2] in _SEEDS or call.name in _OTHERS
    ]
    given = [call.arguments.get("0") or call.arguments.get("seed") for call in seeds]
    if not given or not drawn:
        return
    configs = {one.file for one in project.configs}
    places: list[Place] = []
    for one in given:
        if one is None or not one.is_known or one.value is not None or one.others:
            return
        places += [place for place in (one.place, *one.via) if place.file in configs]
    if not places:
        return  # an option that nobody has to give
    yield Finding(
        f"`{places[0].file}` gives no seed (line {places[0].line}), and `{seeds[0].name.rpartition('.')[2]}` is then left"
        " out or called with nothing: what is drawn by chance differs from run to run, so that two runs cannot be compared.",
        place=places[0],
        also=(seeds[0].place, *(call.place for call in drawn)),
        evidence=Evidence(Level.RESOLVED, {"seed": None}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Write a number there.",
            effort=Effort.LINE,
            accuracy="Another draw, which can be drawn again.",
        ),
    )


def adapters_before_the_trainer(near: Sequence[Script], project: Project) -> Iterator[Said]:
    """A trainer seeds when it is made, which is behind `get_peft_model`; said where equal runs are promised."""
    made = [call for one in near for call in one.calls if call.name == "peft.get_peft_model"]
    promise = _promise(near, project) if made else None
    if promise is None:
        return
    yield Finding(
        f"`{promise.file}` promises equal runs (line {promise.line}), and the adapters' first weights are drawn before"
        " anything is seeded: the trainer sets its seed when it is made, which is later.",
        place=made[0].place,
        also=(promise, *_heads(made[0], near)),
        evidence=Evidence(Level.TEXT, {"drawn": "the adapters' first weights", "seeded": "by the trainer, later"}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Call `transformers.set_seed(...)` before the model is made, or hand the trainer `peft_config`, if it takes"
            " one.",
            effort=Effort.LINE,
            accuracy="Another draw, which can be drawn again.",
        ),
    )


def _heads(call: Call, near: Sequence[Script]) -> Iterator[Place]:
    """Where the function is called that makes the adapters."""
    name = next((one.name for one in reversed(call.around) if one.kind == "function"), "")
    yield from (one.place for script in near for one in script.calls if name and one.name.rpartition(".")[2] == name)


def _promise(near: Sequence[Script], project: Project) -> Place | None:
    for script in near:
        for line, text in script.comments.items():
            if _PROMISED.search(text) and not NOT_SO.search(text):
                return Place(script.file, line)
    for file, document in project.documents.items():
        for number, said in enumerate(document.split("\n"), 1):
            of_runs = re.search(r"\bseed|\bruns?\b", said, re.IGNORECASE)
            if of_runs and _PROMISED.search(said) and not NOT_SO.search(said):
                return Place(file, number)
    return None
