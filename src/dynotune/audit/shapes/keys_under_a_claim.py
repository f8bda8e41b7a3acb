"""A text says that the loss is on answers alone, and a key of the configuration puts it on the rest too."""

import re
from collections.abc import Iterable, Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import NOT_SO, wants_answers
from dynotune.audit.shapes.whole_labels_under_a_claim import claim_in_documents

_ON_THE_REST = {
    "train_on_inputs": True,
    "train_on_prompt": True,
    "train_on_source": True,
    "assistant_only_loss": False,
    "completion_only_loss": False,
}
"""Switches by which prompts come into the loss, and how they stand where they do."""

_OF_USERS = frozenset({"user", "human", "system", "prompter", "instruction"})


_ROLES = "roles_to_train"
_HOW_TO = re.compile(
    r"\b(?:set|option\w*|flag|can|could|may|either|default|choose)\b|_on_inputs|_only_loss", re.IGNORECASE
)
"""Of a sentence that says how it may be had."""


_ONE_SIDE = re.compile(
    r"\bloss\b[^.;]{0,24}?\b(?:on|over|for|from)\s+(?:the\s+)?(?P<who>[a-z]+)(?:'s|s')?\s+(?:turns?|messages?|lines|utterances|replies)"
    r"\s+(?:only|alone)\b|\b(?:only|just)\s+(?:the\s+)?(?P<whose>[a-z]+)(?:'s|s')?\s+(?:turns?|messages?|lines|utterances|replies)\b"
    r"[^.;]{0,30}\b(?:loss|trained on|learned|labels?)\b",
    re.IGNORECASE,
)
"""`loss on operator turns only`: whoever answers in the project's own words."""

_BOTH = frozenset(
    {"user", "human", "system", "all", "both", "every", "these", "those", "such", "last", "first", "final", "other"}
)


def _of_one_side(text: str) -> bool:
    found = _ONE_SIDE.search(text)
    return found is not None and (found["who"] or found["whose"]).lower() not in _BOTH and not NOT_SO.search(text)


def keys_under_a_claim(project: Project) -> Iterator[Said]:
    found = {job.home.file: held for job in project.jobs if (held := _key(job, project)) is not None}
    own = {file: claim for file in found if (claim := _beside(file, found[file][0], project)) is not None}
    for file, claim in own.items():
        yield _finding(claim, *found[file])
    if not found or own or len(found) < len({job.home.file for job in project.jobs}):
        return  # the text may speak of another run
    claim = claim_in_documents(project) or _of_turns(project, found.values())
    if claim is None or _HOW_TO.search(project.documents[claim.file].split("\n")[claim.line - 1]):
        return
    for key, what, remedy in found.values():
        yield _finding(claim, key, what, remedy)


def _beside(file: str, key: Place, project: Project) -> Place | None:
    """A comment of the configuration itself, in a line above the key. Right above it, another rule reads it."""
    comments = next((one.comments for one in project.configs if one.file == file), {})
    for line, text in comments.items():
        near = 0 <= key.line - line <= 1 and key.key != _ROLES
        if line > key.line or near or _HOW_TO.search(text):
            continue
        if wants_answers(text[:300]) or _of_one_side(text[:300]):
            return Place(file, line)
    return None


def _of_turns(project: Project, found: Iterable[tuple[Place, str, str]]) -> Place | None:
    """Of a document, in the project's own words, where keys go by turns."""
    if not all(key.key == _ROLES for key, _, _ in found):
        return None
    for file, document in project.documents.items():
        for number, line in enumerate(document.split("\n"), 1):
            if "loss" in line.lower() and _of_one_side(line[:600]):
                return Place(file, number)
    return None


def _finding(claim: Place, key: Place, what: str, remedy: str) -> Finding:
    return Finding(
        f"`{claim.file}` says that the loss is on answers alone (line {claim.line}), and `{what}` trains on what is"
        " asked as well.",
        place=key,
        evidence=Evidence(Level.RESOLVED, {"setting": what, "claim": f"{claim.file}:{claim.line}"}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL, f"{remedy}, or mend the text.", accuracy="Loss on answers alone, as the text says."
        ),
        also=(claim,),
    )


def _key(job: Job, project: Project) -> tuple[Place, str, str] | None:
    """Where it stands, as it is written, and what to do."""
    rows = given(job, "datasets")
    sets = [
        one for one in (rows.value if rows is not None and isinstance(rows.value, list | tuple) else ()) if _is_set(one)
    ]
    by_turns = bool(sets) and all(one.get("type") == "chat_template" for one in sets)
    for name, wrong in _ON_THE_REST.items():
        key = given(job, name)
        if key is not None and key.value is wrong and not by_turns:  # which goes by roles, whatever this key says
            return key.place, f"{name}: {str(wrong).lower()}", f"Set `{name}: {str(not wrong).lower()}`"
    for one in sets:
        roles = one.get("roles_to_train")
        others = [role for role in roles if role in _OF_USERS] if isinstance(roles, list | tuple) else []
        if others and rows is not None:
            named = f"roles_to_train: {', '.join(map(str, roles))}"
            return _line(rows.place, project), named, f"Take `{'`, `'.join(others)}` out of `roles_to_train`"
    return None


def _is_set(one: object) -> bool:
    return isinstance(one, Mapping)


def _line(rows: Place, project: Project) -> Place:
    """Of the key in the list that begins there."""
    lines = project.texts.get(rows.file, "").split("\n")
    behind = (number for number, text in enumerate(lines, 1) if number >= rows.line and "roles_to_train" in text)
    return Place(rows.file, next(behind, rows.line), key=_ROLES)
