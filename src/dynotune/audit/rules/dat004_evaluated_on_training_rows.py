"""DAT004: rows of the evaluation are trained on."""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from dynotune.audit.facts.data import DataFacts
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.evaluated_on_trained import (
    evaluated_on_trained,
    the_same_file_for_both,
    the_same_split_for_both,
)

HELD_OUT = re.compile(r"(^|[^a-z])(test|eval|evaluation|val|valid|validation|dev|heldout|held-out|held_out)([^a-z]|$)")
FEW = 3


def check(project: Project, _: Project) -> Iterator[Said]:
    if not project.data:
        yield NotChecked(NONE_OF[Subject.DATA])
    for data in project.data:
        yield from _in_the_data(data, project)
    read = {data.place.file for data in project.data}
    for both in project.of_both:
        if both.shared >= min(FEW, both.of) and not read >= {both.test.file, both.train.file}:
            yield _shared(f"{both.shared:,}", both.of, both.test, both.train)
    for script in project.scripts:
        known = [*_in_a_script(script)]
        yield from known or evaluated_on_trained(script, project)
    yield from the_same_file_for_both(project)
    yield from the_same_split_for_both(project)


def _in_the_data(data: DataFacts, project: Project) -> Iterator[Said]:
    if not data.contents or not _is_held_out(data, project):
        return
    for train in project.data:
        if train is data or _is_held_out(train, project) or train.per_example != data.per_example:
            continue
        shared = set(train.contents) & set(data.contents)
        again = sum(content in shared for content in data.contents)
        if again >= min(FEW, len(data.contents)):
            yield _finding(train, data, again)


def _is_held_out(data: DataFacts, project: Project) -> bool:
    name = PurePosixPath(data.place.file).name.lower()
    named = (job.get("eval_dataset_name") for job in project.jobs)
    return HELD_OUT.search(name) is not None or any(isinstance(one, str) and one.endswith(name) for one in named)


def _finding(train: DataFacts, test: DataFacts, again: int) -> Finding:
    least = "at least " if train.sampled or test.sampled else ""
    return _shared(f"{least}{again:,}", len(test.contents), test.place, train.place)


def _shared(again: str, of: int, test: Place, train: Place) -> Finding:
    return Finding(
        f"{again} of {of:,} rows of {test.file} stand in {train.file} too, so what is measured on them is memory.",
        place=test,
        evidence=Evidence(Level.RESOLVED, {"shared": again, "evaluation rows": of}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take them out of the training data (or hold rows out with `test_split_size`).",
            effort=Effort.MINUTES,
        ),
        also=(train,),
    )


_PART = re.compile(r"\.(select|shuffle|take)\(|\[\s*(train)?\s*:")


def _in_a_script(script: Script) -> Iterator[Said]:
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call):
            continue
        given = {one.arg: one.value for one in node.keywords if one.arg}
        train, test = given.get("train_dataset"), given.get("eval_dataset")
        if train is None or test is None or isinstance(test, ast.Constant):
            continue
        trained, tested = ast.unparse(train), ast.unparse(test)
        if trained != tested and not (tested.startswith(f"{trained}.") and _PART.match(tested[len(trained) :])):
            if not _same_file(script, trained, tested):
                continue
            how = "is loaded from rows of"
        else:
            how = "is" if trained == tested else "is a part of"
        yield Finding(
            f"`eval_dataset={tested}` {how} `{trained}`, which is trained on: the evaluation says how well rows are"
            " remembered, and would choose a checkpoint by that.",
            place=place_of(script, test),
            evidence=Evidence(Level.TEXT, {"train_dataset": trained, "eval_dataset": tested}),
            stake=Stake(AtStake.FIGURES),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Hold rows out: `parts = rows.train_test_split(0.02, seed=0)`, and give each trainer argument its"
                " part.",
                effort=Effort.MINUTES,
            ),
            also=(place_of(script, train),),
        )


def _same_file(script: Script, trained: str, tested: str) -> bool:
    """Both names are given by one `load_dataset` each, of the same source; training takes all of a split, evaluation a part
    of it or the same."""
    one, two = _loaded(script, trained), _loaded(script, tested)
    if one is None or two is None or one is two:
        return False
    source = [
        {name: setting.value for name, setting in call.arguments.items() if name != "split"} for call in (one, two)
    ]
    parts = [call.arguments["split"].value if "split" in call.arguments else None for call in (one, two)]
    if source[0] != source[1] or not all(
        setting.is_known for call in (one, two) for setting in call.arguments.values()
    ):
        return False
    whole, part = parts
    return isinstance(whole, str) and isinstance(part, str) and whole.isidentifier() and part.partition("[")[0] == whole


def _loaded(script: Script, name: str) -> Call | None:
    calls = [call for call in script.calls_of("load_dataset") if call.result == name]
    bound = len(re.findall(rf"(?m)^\s*{re.escape(name)}\s*=", script.source))
    return calls[0] if len(calls) == 1 and bound == 1 else None


_SCRIPT = """from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
parts = rows.train_test_split(0.02, seed=0)
args = SFTConfig(output_dir="out", eval_strategy="epoch")
SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset={}, eval_dataset={}).train()
"""


RULE = Rule(
    code="DAT004",
    name="evaluated-on-training-rows",
    summary="Rows of the evaluation are trained on.",
    group=Group.DATA,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The evaluation's loss is to say how the model does on rows that it has not seen: none with the same content in"
        " both data sets, whatever their ids, and no part of what the trainer trains on.",
        why="On training rows it falls for ever and says how well they were memorised, early stopping never stops, and the"
        " best checkpoint is the last.",
        detected="E1: hashes of the content of all rows read, and of files that a configuration, a program or a command"
        " names beside each other for both; which set is held out is known from the job or the file's"
        " name. E0: `eval_dataset` is what `train_dataset` is, a selection of it, or loaded from a part of the same split;"
        " two slices of one split that overlap; rows drawn from a list that is trained on whole, also"
        " where a function or a dictionary of splits hands on both; rows that are repeated and"
        " divided afterwards; held-out rows that are joined with the training rows, or divided off from rows that are"
        " trained on whole; one file or split that a configuration or a command names for both.",
        proven="Compare with the loss on rows that were held out before training.",
        deliberate=(
            "The evaluation set is a part of the training data on purpose, to watch memorising; another is held out.",
            "A test of the code.",
        ),
        sources=(
            "The same hashes as `dynotune prepare`'s check of duplicates",
            "transformers' documentation of `Trainer`",
        ),
    ),
    bad=Example({"train.py": _SCRIPT.format("rows", "rows.select(range(200))")}, says="is a part of"),
    good=Example({"train.py": _SCRIPT.format('parts["train"]', 'parts["test"]')}),
    formerly=("DAT007",),
    former_names=("shared-with-evaluation",),
)
