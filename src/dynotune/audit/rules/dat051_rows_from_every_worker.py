"""DAT051: each worker of a loader goes over the whole stream, so that every row comes once for each of them."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.loaded_data import argument, makers
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_DIVIDES = re.compile(
    r"get_worker_info|worker_init_fn|worker_id|split_by_worker|split_dataset_by_node|wds\.|webdataset|\bnodesplitter|islice\("
)
"""What may give each worker rows of its own."""

_SHARES = re.compile(r"streaming[\"']?\s*[=:]\s*True|to_iterable_dataset\(|IterableDataset\.from_|from_generator\(")
"""A stream of `datasets` shares its files out among a loader's workers by itself, also inside of another class."""

_DRAWS = re.compile(r"\brandom\b|randint|randperm|shuffle|\brng\b|choice|sample\(|seed")
"""Rows that are drawn differ between workers, if not by much."""

_READS = re.compile(r"open\(|self\.\w+|load_dataset\(|read_\w+\(|iter\w*\(|glob")
_NOT_TRAINING = re.compile(r"eval|valid|test|dev", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    loaders = [call for call in script.calls_of("DataLoader") if _workers(call) > 1]
    if not loaders:
        return
    program = connected(script, project)
    sources = [code(one) for one in program]
    if any(_DIVIDES.search(one) or _SHARES.search(one) for one in sources) or not any(
        TRAINS.search(one) for one in sources
    ):
        return
    streams = {node.name: (one, node, room) for one in program for node, room in _streams(one)}
    for call in loaders if streams else ():
        if _NOT_TRAINING.search(call.result):
            continue
        made = makers(argument(script, call, "dataset", position=0), script, program)
        name = next((one for one in made if one in streams), None)
        if name is not None:
            yield _finding(call, name, *streams[name])
            return


def _workers(call: Call) -> int:
    given = call.arguments.get("num_workers")
    return given.value if given is not None and type(given.value) is int else 0


def _streams(script: Script) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Classes over torch's `IterableDataset` whose `__iter__` goes over what is there, in one order."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.ClassDef) or not any(
            ast.unparse(one).endswith("IterableDataset") for one in node.bases
        ):
            continue
        room = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__iter__"), None)
        if room is None or _DRAWS.search(ast.unparse(node)):
            continue
        loops: Sequence[ast.For] = [one for one in own_nodes(room) if isinstance(one, ast.For)]
        if any(_READS.search(ast.unparse(one.iter)) for one in loops):
            yield node, room


def _finding(call: Call, name: str, home: Script, node: ast.ClassDef, room: ast.FunctionDef) -> Finding:
    workers = _workers(call)
    return Finding(
        f"`num_workers={workers}` over `{name}`, an `IterableDataset` whose `__iter__` asks for no worker's number: each of"
        f" the {workers} workers goes over all rows, and every row comes {workers} times an epoch.",
        place=call.place,
        also=(place_of(home, room),),
        evidence=Evidence(Level.TEXT, {"workers": workers, "divided": False}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Divide the rows by `torch.utils.data.get_worker_info()` in `__iter__` (`islice(rows, info.id, None,"
            " info.num_workers)`), or set `num_workers` to 1.",
            effort=Effort.MINUTES,
            accuracy="Every row is seen once an epoch.",
            measure="Count the rows of one epoch.",
        ),
    )


_SCRIPT = """import json

from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        for line in open(self.path):
            yield json.loads(line)["text"]


loader = DataLoader(Stream("data.jsonl"), batch_size=8, num_workers={})
for batch in loader:
    loss = model(**collate(batch)).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="DAT051",
    name="rows-from-every-worker",
    summary="Each worker of a loader goes over the whole stream.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A loader copies an `IterableDataset` into each of its workers, and each copy is iterated from its beginning."
        " What divides the rows is the data set's own code, by `get_worker_info()`.",
        why="With four workers an epoch is four epochs: rows come four times, close together, and schedules and counts that"
        " are made for one are wrong.",
        detected="E0: a `DataLoader` with two workers or more over a class of the project that is an `IterableDataset`,"
        " whose `__iter__` goes over a file or over what it holds in one order, in a program that names no worker's number."
        " Streams that draw their rows by chance, and those of `datasets`, which share their files out themselves, are not"
        " reported.",
        proven="Count the rows of one epoch.",
        deliberate=("Each epoch is meant to be as many as there are workers.",),
        sources=("PyTorch's documentation of `torch.utils.data.IterableDataset`: duplicate data by several workers",),
    ),
    bad=Example({"train.py": _SCRIPT.format(4)}, says="every row comes 4 times"),
    good=Example({"train.py": _SCRIPT.format(1)}),
)
