"""Rows are padded on the left, and the prompt's labels are masked from the row's first place on, which is padding."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_LEFT = re.compile(r"padding_side[\"']?\s*[=:]\s*[\"']left[\"']")
_RIGHT = re.compile(r"padding_side[\"']?\s*[=:]\s*[\"']right[\"']")
_PADS = re.compile(r"padding=(?:True|'longest'|'max_length')|\.pad\(")
_CUT = re.compile(r"^\w*labels\w*\[\w+(?:, |\]\[)0?:(?P<end>\w+)\]$|^\w*labels\w*\[0?:(?P<row>\w+)\]$")
_OFFSET = re.compile(r"offset|pad_?len|n_?pad|left|first|argmax|nonzero|\.sum\(|attention_mask\[\w+\]\.|shape|size\(")
"""What may tell how much of a row is padding."""


def from_the_left(script: Script, project: Project) -> Iterator[Said]:
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    sources = [code(one) for one in connected(script, project)]
    if not any(_LEFT.search(one) for one in sources) or any(_RIGHT.search(one) for one in sources):
        return
    for room in ast.walk(script.tree):
        text = ast.unparse(room) if isinstance(room, ast.FunctionDef) else ""
        if not _PADS.search(text) or _OFFSET.search(text) or "label" not in text:
            continue
        for node in ast.walk(room):
            found = _CUT.match(ast.unparse(node.targets[0])) if isinstance(node, ast.Assign) else None
            if found is None or not isinstance(node, ast.Assign) or not re.search(r"-100|IGNORE", ast.unparse(node.value)):
                continue
            name = found["end"] or found["row"]
            if not re.search(rf"\b{name} = len\(|for (?:\w+, )?\(?[\w, ]*\b{name}\b[^\n]* in [^\n]*len", text):
                continue
            yield Finding(
                f"Rows are padded on the left (`padding_side=\"left\"`), and `{ast.unparse(node)[:60]}` counts the prompt from"
                " the row's first place, which is padding: in a padded row the end of the prompt carries loss.",
                place=place_of(script, node),
                evidence=Evidence(Level.TEXT, {"masked": ast.unparse(node)[:80], "padding": "left"}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Pad on the right for training (left padding is for generation), or mask before rows are padded.",
                    effort=Effort.LINE,
                    accuracy="Loss on answers alone, in every row.",
                    measure="Print the labels of a padded row that are not -100.",
                ),
            )
            return
