"""A project says that its loss is on every token, and labels, or a key, take the prompt out of it."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import NOT_SO

_EVERY = re.compile(
    r"\bloss\b[^.;]{0,30}\b(?:over|on|covers?|of|for|from|to)\b[^.;]{0,14}\b(?:every|all|each|whole|entire|both|full)\b[^.;]{0,30}"
    r"\b(?:tokens?|turns?|texts?|conversations?|sides|dialog\w*|sequences?|speakers)\b"
    r"|\b(?:every|all|each|both|whole|entire)\b[^.;]{0,30}\b(?:tokens?|turns?|sides|conversations?|speakers)\b[^.;]{0,24}"
    r"\b(?:trained on|carry loss|carries loss|in the loss|contributes? to the loss|(?:gets?|has|have) a? ?loss"
    r"|learned from)",
    re.IGNORECASE,
)
_OF_ANSWERS = re.compile(
    r"\b(?:answers?|responses?|completions?|assistant|repl(?:y|ies)|agent'?s?|averag\w+|mean|per|validation|eval\w*|divid\w+"
    r"|packed|padd\w+|non-pad\w*|valid|real|unmasked|labell?ed)\b",
    re.IGNORECASE,
)
"""What makes it a sentence of some tokens, or of how their loss is put together."""

_KEYS = {
    "train_on_inputs": False,
    "train_on_prompt": False,
    "assistant_only_loss": True,
    "completion_only_loss": True,
}
_PROMPT = re.compile(r"prompt|source|context|question|instr|head|user|prefix|start|\bn\b|\bp\b|cut", re.IGNORECASE)
_BEFORE = re.compile(r"^\[(?:-100|\w*IGNORE\w*)\] \* (.+)$")


def all_tokens_under_a_claim(project: Project) -> Iterator[Said]:
    training = [one for one in project.scripts if TRAINS.search(one.source)]
    for script in training:
        program = connected(script, project)
        masked = next((found for one in program if (found := _masked(one)) is not None), None)
        claim = _claim(program, project, alone=len(training) == 1) if masked is not None else None
        if masked is not None and claim is not None:
            yield _finding(
                claim, masked[0], f"`{masked[1]}` takes the prompt's tokens out of it", "Leave the labels whole"
            )
            return
    homes = {job.home.file for job in project.jobs}
    for job in project.jobs:
        for name, value in _KEYS.items():
            key = given(job, name)
            if key is None or key.value is not value:
                continue
            claim = _beside(key.place, project) or (_in_documents(project) if len(homes) == 1 else None)
            if claim is not None:
                shown = f"{name}: {str(value).lower()}"
                yield _finding(claim, key.place, f"`{shown}` takes it from answers alone", f"Take `{shown}` out")
                return


def _masked(script: Script) -> tuple[Place, str] | None:
    """`[-100] * len(prompt) + ids[len(prompt):]`, or a collator that does so."""
    for call in script.calls_of("DataCollatorForCompletionOnlyLM", "train_on_responses_only"):
        return call.place, call.name.rpartition(".")[2]
    for node in ast.walk(script.tree) if "labels" in script.source else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            found = _BEFORE.match(ast.unparse(node.left))
            if found is not None and _PROMPT.search(found[1]) and "pad" not in found[1].lower():
                return place_of(script, node), ast.unparse(node)[:60]
    return None


def _wants_all(text: str) -> bool:
    plain = re.sub(r"[*_`]", "", text)
    for sentence in re.split(r"(?<=[a-z)])[.;] ", plain[:600]):
        found = _EVERY.search(sentence)
        if found is not None and not NOT_SO.search(sentence) and not _OF_ANSWERS.search(found[0]):
            return True
    return False


def _claim(program: Sequence[Script], project: Project, *, alone: bool) -> Place | None:
    for script in program:
        for line, text in script.comments.items():
            if _wants_all(text):
                return Place(script.file, line)
    return _in_documents(project) if alone else None


def _in_documents(project: Project) -> Place | None:
    for file, document in project.documents.items():
        for number, line in enumerate(document.split("\n"), 1):
            if _wants_all(line):
                return Place(file, number)
    return None


def _beside(key: Place, project: Project) -> Place | None:
    comments = next((one.comments for one in project.configs if one.file == key.file), {})
    return next((Place(key.file, line) for line, text in comments.items() if _wants_all(text)), None)


def _finding(claim: Place, place: Place, what: str, remedy: str) -> Finding:
    return Finding(
        f"`{claim.file}` says that the loss is on every token (line {claim.line}), and {what}: what is asked is never"
        " learned.",
        place=place,
        also=(claim,),
        evidence=Evidence(Level.TEXT, {"claim": f"{claim.file}:{claim.line}", "masked": True}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{remedy}, or mend the text.",
            effort=Effort.LINE,
            accuracy="Loss on all tokens, as the text says.",
            measure="Print the labels of one row that are not -100.",
        ),
    )
