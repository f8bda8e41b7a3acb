"""A strategy of Lightning's that looks for unused parameters, around a model that has none."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known, reader

_BY_NAME = re.compile(r"ddp\w*_find_unused_parameters_true")
_LOADED = re.compile(
    r"AutoModelFor(?:CausalLM|SequenceClassification|TokenClassification|QuestionAnswering|MaskedLM)\.from_pretrained\(\s*['\"]([^'\"]+)"
)


def unused_by_lightning(script: Script, project: Project) -> Iterator[Said]:
    if "ightning" not in script.source or "find_unused_parameters" not in script.source:
        return
    near = [code(one) for one in connected(script, project)]
    loads = sum(
        len(re.findall(r"\.from_pretrained\(", re.sub(r"\w*[Tt]ok\w*\.from_pretrained\(", "", one))) for one in near
    )
    names = [name for one in near for name in _LOADED.findall(one)]
    if len(names) != 1 or loads != 1 or (known(names[0]) or reader(names[0])) is None:
        return  # what else is loaded may be left out of a step
    if any(
        re.search(r"nn\.(?:Linear|Parameter|Embedding|ModuleList)\(|requires_grad|get_peft_model", one) for one in near
    ):
        return
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _BY_NAME.fullmatch(node.value):
            yield _finding(script, node, f'strategy="{node.value}"')
            return
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] in ("DDPStrategy", "DDPPlugin")
            and any(
                one.arg == "find_unused_parameters" and isinstance(one.value, ast.Constant) and one.value.value is True
                for one in node.keywords
            )
        ):
            yield _finding(script, node, "find_unused_parameters=True")
            return


def _finding(script: Script, node: ast.AST, asked: str) -> Finding:
    return Finding(
        f"`{asked}` walks the whole graph after every forward pass to look for parameters that no loss depends on."
        " This model has none: every weight takes part in each step.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"asked": asked}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(Risk.OPERATIONAL, 'Use `strategy="ddp"`, and look whether the first steps run.'),
    )
