"""Rows have a system turn, and the model's own chat template raises an error at one."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_REFUSES = re.compile(r"^google/gemma-(?:2-)?\d+b-it$")
_GIVES = re.compile(r"(?<!apply_)chat_template|setup_chat_format|[Uu]nsloth|['\"]gemma['\"]|== ['\"]system['\"]")
"""What may give it another template, or take such turns apart."""


def system_turn_refused(job: Job, project: Project) -> Iterator[Said]:
    model = job.get("model_name_or_path")
    start = next((one for one in project.scripts if one.file in job.files), None)
    if not isinstance(model, str) or not _REFUSES.match(model.lower()) or start is None:
        return
    program = connected(start, project)
    sources = [code(one) for one in program]
    rendered = any(re.search(r"apply_chat_template|SFTTrainer", one) for one in sources)
    if not rendered or any(_GIVES.search(one) for one in sources):
        return
    for script in program:
        for node in _turns(script):
            yield Finding(
                f"Rows have a system turn (`{ast.unparse(node)[:50]}`), and the chat template of `{model}` knows none: it"
                " raises `System role not supported` at the first row.",
                place=place_of(script, node),
                evidence=Evidence(Level.TEXT, {"model": model, "role": "system"}),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Put its words in front of the first user's turn.",
                    effort=Effort.MINUTES,
                    accuracy="The same words are seen, as the model has learned to see them.",
                ),
                also=(job.place("model_name_or_path"),),
            )
            return


_SERVICE = re.compile(
    r"(?:completions|responses|messages)\.(?:create|parse)$|(?:^|\.)a?completion$|chat_completion$|\.chat$|requests\.post$"
)
"""Calls that ask another model for a text."""


def _of_services(script: Script) -> set[int]:
    """What stands in such a call, or in the function that makes it and renders no row."""
    found: set[int] = set()
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and _SERVICE.search(ast.unparse(node.func)):
            found |= {id(one) for one in ast.walk(node)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)]
            if any(map(_SERVICE.search, calls)) and not any("apply_chat_template" in one for one in calls):
                found |= {id(one) for one in ast.walk(node)}
    return found


def _turns(script: Script) -> Iterator[ast.Dict]:
    """`{"role": "system", "content": ...}`, behind which other turns stand in a list."""
    asked = _of_services(script)
    for node in ast.walk(script.tree):
        if id(node) in asked:
            continue
        first = node.elts[0] if isinstance(node, ast.List) and node.elts else None
        if not isinstance(first, ast.Dict):
            continue
        for key, value in zip(first.keys, first.values, strict=True):
            is_role = isinstance(key, ast.Constant) and key.value == "role"
            if is_role and isinstance(value, ast.Constant) and value.value == "system":
                yield first
