"""MSR003: rows or weights are drawn from no seed."""

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.new_weights import made_by_chance
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.seeded_too_late import seeded_too_late
from dynotune.audit.shapes.seeded_with_nothing import adapters_before_the_trainer, seeded_with_nothing

_SEEDED = re.compile(
    r"\b\w*seed\w*\s{0,4}\((?!self)|\bGenerator\(|default_rng\(\s{0,4}\w|RandomState\(\s{0,4}\w", re.IGNORECASE
)
"""A call that seeds: `set_seed(...)`, `random.seed(...)`, `seed_everything(...)`, a generator that is made."""

_ROWS = frozenset(
    {"random.shuffle", "random.sample", "numpy.random.shuffle", "numpy.random.permutation", "torch.randperm"}
)
_ELSEWHERE = re.compile(r"eval|test_|infer|predict|generat|demo|plot", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    trained = any(loops(script)) or _by_lightning(script)
    handed = any(job.home.file == script.file and job.trainer in _TRAINERS for job in project.jobs)
    if not trained and not handed:
        return
    near = connected(script, project)
    if leads_out(near, project):
        return
    if any(_SEEDED.search(_without_definitions(one)) for one in near):
        yield from seeded_too_late(script, near, lambda call: _draws_rows(call, trained))
        draws = [call for one in near for call in one.calls if _draws_rows(call, trained)]
        yield from seeded_with_nothing(near, project, [*draws, *made_by_chance(near)])
        return
    own = {node.name for one in project.scripts for node in ast.walk(one.tree) if isinstance(node, ast.ClassDef)}
    if trained and any(_is_a_librarys(call, own) for one in near for call in one.calls):
        return  # which sets one; whether before or behind is not looked at
    rows = [call for one in near if not _ELSEWHERE.search(one.file) for call in one.calls if _draws_rows(call, trained)]
    adapters = [call for one in near for call in one.calls if trained and call.name == "peft.get_peft_model"]
    rows = _before_unsloth_seeds(rows, near)
    weights = [*made_by_chance(near)] if trained else []
    drawn = [*rows, *adapters, *weights]
    if not drawn:
        yield from adapters_before_the_trainer(near, project)
        return
    what = " and ".join(
        [
            *(["which rows come when"] if rows else []),
            *(["the adapters' first weights"] if adapters else []),
            *(["the new layers' first weights"] if weights else []),
        ]
    )
    differ = "differ" if adapters or weights else "differs"
    asked = list(_asked(near))
    kept = _kept(near, project) if not asked else []
    told = "`--seed` is taken and seeds nothing" if asked else "No seed is set"
    if kept:
        told = f"`seed` of `{kept[0].file}` seeds nothing"
    yield Finding(
        f"{told}: {what} {differ} from run to run, so that two runs cannot be compared.",
        place=drawn[0].place,
        evidence=Evidence(Level.TEXT, {"drawn": what, "seed": None}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Call `transformers.set_seed({'args.seed' if asked else '42'})` (or `torch.manual_seed`) before the model"
            " and the loader are made."
            if trained
            else "Give it a seed: the trainer's own is set later, and not for this.",
            accuracy="Another draw, which can be drawn again.",
        ),
        also=(*(call.place for call in drawn[1:]), *asked, *kept, *_begins(drawn[0], near)),
    )


def _by_lightning(script: Script) -> bool:
    """Lightning's trainer, which seeds nothing."""
    made = any(_LIGHTNING.match(call.name) for call in script.calls)
    return made and any(call.name.rpartition(".")[2] == "fit" for call in script.calls)


_LIGHTNING = re.compile(r"(?:lightning|pytorch_lightning)\.(?:pytorch\.)?Trainer$")

_LIBRARYS = re.compile(
    r"(?:transformers|trl|unsloth|sentence_transformers)\b.*\.(?:\w*Trainer|\w*TrainingArguments|SFTConfig|DPOConfig)$"
)
"""A trainer of a library's, which seeds; a project's own class may be called the same."""

_TRAINS = re.compile(r"\w[\w.]*\.\w*(?:Trainer|Arguments)$")
_SEEDABLE = re.compile(r"\w[\w.]*\.(?!\w*(?:Sampler|Loader|Dataset|Namespace)$)[A-Z]\w*$")


def _is_a_librarys(call: Call, own: Collection[str]) -> bool:
    """Also of a library that nothing is known of; and a class of one that is handed a seed."""
    if _LIGHTNING.match(call.name):
        return False
    if _LIBRARYS.match(call.name):
        return True
    if call.name.rpartition(".")[2] in own:
        return False
    seed = call.arguments.get("seed")
    seeded = seed is not None and type(seed.value) is int and _SEEDABLE.match(call.name) is not None
    return seeded or _TRAINS.match(call.name) is not None


_TRAINERS = (Trainer.TRANSFORMERS, Trainer.TRL, Trainer.UNSLOTH)


def _before_unsloth_seeds(rows: Sequence[Call], near: Sequence[Script]) -> list[Call]:
    """Unsloth's `get_peft_model` seeds everything, numpy too: rows that are drawn behind it are the same each time."""
    seeds = [call for one in near for call in one.calls_of("get_peft_model") if call.name.startswith("unsloth.")]
    if not seeds:
        return list(rows)
    return [
        call
        for call in rows
        if not call.around
        and all(
            call.place.file == one.place.file and not one.around and call.place.line < one.place.line for one in seeds
        )
    ]


def _begins(call: Call, near: Sequence[Script]) -> Iterator[Place]:
    """The head of the function that draws: a seed is set where that begins."""
    name = next((around.name for around in call.around if around.kind == "function"), None)
    for script in near if name is not None else ():
        if script.file == call.place.file:
            yield from (
                Place(script.file, node.lineno)
                for node in ast.walk(script.tree)
                if isinstance(node, ast.FunctionDef) and node.name == name
            )


_OPTION = re.compile(r"^\s*(?:\w+\.add_argument\(\s*[\"']--seed\b|seed\s*:\s*int\b)")


def _asked(near: Sequence[Script]) -> Iterator[Place]:
    """Options that ask for a seed which nobody sets."""
    for script in near:
        for number, line in enumerate(script.source.split("\n"), 1):
            if _OPTION.search(line):
                yield Place(script.file, number, 1, number, len(line) + 1)


def _kept(near: Sequence[Script], project: Project) -> list[Place]:
    """Keys of the program's configurations that ask for a seed, of which no line of it speaks."""
    if any(re.search(r"\.seed\b|[\"']seed[\"']", code(one)) for one in near):
        return []
    files = {one.file for one in near}
    own = {file for job in project.jobs if files & set(job.files) for file in job.files}
    return [one.places["seed"] for one in project.configs if one.file in own and type(one.values.get("seed")) is int]


def _draws_rows(call: Call, trained: bool) -> bool:
    """Rows are shuffled, or divided, by numbers that nobody has seeded."""
    last = call.name.rpartition(".")[2]
    functions = [around.name for around in call.around if around.kind in ("function", "class")]
    if any(_ELSEWHERE.search(name) for name in functions):
        return False
    given = {name for name, one in call.arguments.items() if one.value is not None} if call.arguments else set()
    if last == "train_test_split":
        fixed = call.arguments.get("shuffle")
        return not {"seed", "random_state", "generator", "**"} & given and (fixed is None or fixed.value is not False)
    if last == "random_split" or call.name in _ROWS:
        return "generator" not in given
    if last == "shuffle" and call.on and call.on not in ("random", "np.random", "rng"):
        return not given
    shuffled = call.arguments.get("shuffle") if trained and call.name == "torch.utils.data.DataLoader" else None
    return shuffled is not None and shuffled.value is True and "generator" not in given


def _without_definitions(script: Script) -> str:
    """Its code without heads of functions, whose names call nothing."""
    return re.sub(r"^\s*(async )?def \w+\(", "(", code(script), flags=re.MULTILINE)


_LOOP = """import torch
from torch.utils.data import DataLoader

%sloader = DataLoader(rows, batch_size=8, shuffle=True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="MSR003",
    name="no-seed",
    summary="A training loop sets no seed.",
    group=Group.MEASURE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Shuffling, dropout and new weights come from random numbers. Trainers set a seed (42); a loop must do"
        " so itself.",
        why="The difference between two runs is then that of a setting and of luck, and nobody can tell how much of"
        " which.",
        detected="E0: rows that are shuffled or divided, adapters or new layers that are made, without a seed of"
        " their own, in loops and under Lightning's trainer,"
        " and no call in any file of the program that sets one, or only calls behind them in the same"
        " function. Of a trainer's script only rows that are drawn before it: the trainer"
        " seeds the rest.",
        proven="Run twice and compare the first losses.",
        deliberate=("Runs are repeated often enough to average over.",),
        sources=("PyTorch's notes on reproducibility",),
    ),
    bad=Example({"train.py": _LOOP % ""}, says="No seed"),
    good=Example({"train.py": _LOOP % "torch.manual_seed(0)\n"}),
)
