"""A program says that its loss is on answers alone, and its labels are all tokens of a row."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claims_of_comments import wants_answers

_COPIED = re.compile(
    r"^(?:list\()?[\w.]*(?:\[['\"])?(?:input_ids|ids|tokens)(?:['\"]\])?(?:\.(?:copy|clone)\(\)|\[:\])?\)?$"
)
_MASKS = re.compile(
    r"-100|IGNORE|ignore_index|CompletionOnly|responses_only|assistant_mask|completion_mask|completion_only|assistant_only"
    r"|return_assistant_tokens|loss_mask|label_mask|prompt_mask\b|train_on_inputs|SFTTrainer|masked_fill"
)
"""What may take the prompt out of the loss, whatever it is called."""

_PADS = r"[\w.\[\]\"']*(?:pad_token_id|pad_id|attention_mask|PAD\w*|\bpad\b)[\w.\[\]\"']*"
_OF_PADDING = re.compile(
    rf"\[[^\n\[\]]*(?:\[[\"']\w+[\"']\])?\s*(?:==|!=)\s*{_PADS}\s*\]\s*=\s*-100"
    rf"|\[{_PADS}(?:\.bool\(\))?\s*==\s*(?:0|False)\s*\]\s*=\s*-100|\[~{_PADS}(?:\.bool\(\))?\]\s*=\s*-100"
    rf"|\.masked_fill_?\([^,\n]*{_PADS}[^,\n]*,\s*-100\s*\)|label_pad_token_id\s*=\s*-100|padding_value\s*=\s*-100"
    rf"|torch\.where\([^,\n]*{_PADS}[^\n]*-100[^\n]*\)|\(?\w+ if \w+ != {_PADS} else -100\)?"
    rf"|\(?\w+ if (?:m|mask|a|att|am)(?: == 1)? else -100\)?|-100 if \w+ == {_PADS} else \w+|ignore_index\s*=\s*-100"
)
"""What takes padding out of the loss, and says nothing of prompts."""


def whole_labels_under_a_claim(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        made = _whole(script)
        program = connected(script, project) if made is not None else ()
        if made is None or any(_MASKS.search(_OF_PADDING.sub("", code(one))) for one in program):
            continue
        if not any("CausalLM" in one.source for one in program):
            continue
        if not any(one.calls_of("Trainer") or any(loops(one)) for one in program):
            continue
        claim = _claim(program, project)
        if claim is None:
            continue
        labels = ast.unparse(made)
        what = "labels are made by" if "DataCollator" in labels else "labels are"
        yield Finding(
            f"`{claim.file}` wants the loss on answers alone (line {claim.line}), and {what} `{labels[:60]}`:"
            " nothing masks the prompt, and the loss is on it as well.",
            place=place_of(script, made),
            also=(claim,),
            evidence=Evidence(Level.TEXT, {"labels": labels[:80], "masked": False}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Make labels in the rows, -100 for the prompt's tokens, and pad them by `DataCollatorForSeq2Seq`; or mend"
                " the text."
                if "DataCollator" in labels
                else "Set the labels of the prompt's tokens to -100, or mend the text.",
                effort=Effort.MINUTES,
                accuracy="Loss on answers alone, as the text says.",
                measure="Print the labels of one row that are not -100.",
            ),
        )
        return


_BUT_PADDING = re.compile(
    r"^\[(?:(\w+) if \1 != [\w.]*pad\w* else -100|-100 if (\w+) == [\w.]*pad\w* else \2|(\w+) if \w+(?: == 1)? else -100)"
    r" for [\w(), ]+ in [^\n]*(?:input_ids|\bids\b)",
    re.IGNORECASE,
)
"""`[i if i != tok.pad_token_id else -100 for i in ids]`."""


def _is_whole(value: ast.expr) -> bool:
    text = ast.unparse(value)
    by_mask = "if" in text and "zip(" in text and "mask" not in text
    return bool(_COPIED.match(text) or (_BUT_PADDING.match(text) and not by_mask))


def _whole(script: Script) -> ast.expr | None:
    """`{"labels": list(ids)}`, `out["labels"] = out["input_ids"].copy()`, or a collator that makes them of all ids."""
    if "labels" not in script.source:
        return next(_collators(script), None)
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "labels" and _is_whole(value):
                    return value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and key.value == "labels" and _is_whole(node.value):
                return node.value
    return None


def _collators(script: Script) -> Iterator[ast.expr]:
    """`DataCollatorForLanguageModeling(tok, mlm=False)`, whose labels are the ids but for padding."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("DataCollatorForLanguageModeling"):
            words = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if words.get("mlm") == "False" or (len(node.args) > 1 and ast.unparse(node.args[1]) == "False"):
                yield node


_SENTENCES = re.compile(r"(?<=[a-z)`])[.;] |, (?:so|because|since|which) ")
"""What follows says why, often by a `not`."""


def claim_of_answers(file: str, project: Project) -> Place | None:
    """Where the program of a script, or a document, says that the loss is on answers alone."""
    start = next((one for one in project.scripts if one.file == file), None)
    return _claim(connected(start, project), project) if start is not None else None


def _claim(program: Sequence[Script], project: Project) -> Place | None:
    """In a comment, a docstring, an option's help, or a document."""
    for script in program:
        for line, text in script.comments.items():
            if wants_answers(text):
                return Place(script.file, line)
        for node in ast.walk(script.tree):
            said = str(node.value) if isinstance(node, ast.Constant) else ""
            if 12 < len(said) < 400 and wants_answers(said):
                return place_of(script, node)
        for note in project.notes.get(script.file, "").split("\n"):
            if any(wants_answers(one) for one in _SENTENCES.split(note[:600])):
                return Place(script.file, 1)
    claim = claim_in_documents(project)
    return None if claim is not None and _may_be_of_another(claim, program, project) else claim


def _may_be_of_another(claim: Place, program: Sequence[Script], project: Project) -> bool:
    """Whether the project has another program that trains, or a configuration of a trainer's own, and the sentence names
    none of this one's files (`SFT`, of `sft.py`)."""
    files = {one.file for one in program}
    others = any(one.file not in files and TRAINS.search(code(one)) for one in project.scripts)
    if not others and not any(job.files and not files & set(job.files) for job in project.jobs):
        return False
    line = project.documents[claim.file].split("\n")[claim.line - 1]
    said = next((one for one in _SENTENCES.split(line) if wants_answers(one)), line).lower()
    stems = {re.escape(file.rpartition("/")[2].removesuffix(".py").lower()) for file in files}
    return re.search(rf"\b(?:{'|'.join(stems)})\b", said) is None


def claim_in_documents(project: Project) -> Place | None:
    for file, document in project.documents.items():
        for number, whole in enumerate(document.split("\n"), 1):
            if any(wants_answers(sentence) for sentence in _SENTENCES.split(whole[:600])):
                return Place(file, number)
    return None
