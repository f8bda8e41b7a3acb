"""Documents are tokenised by one function without an end, and joined and cut into blocks by another."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_FLATTENS = re.compile(r"(?:^|\.)(?:from_iterable|chain|concatenate|hstack)$")
_ROWS = re.compile(
    r"^\w+\[['\"]?(?:text|content|document|doc|article|body|page|passage|raw|code|story|text_col\w*|column\w*|TEXT\w*)s?['\"]?\]$"
    r"|^(?:texts?|documents?|docs?)$"
)
_TOKENIZES = re.compile(
    r"(?:^|\.)\w*tok\w*$|(?:tok|enc)\w*\.(?:encode|encode_batch|encode_ordinary|encode_ordinary_batch|batch_encode_plus)$"
)
_CHATS = re.compile(r"chat_template|messages|-100|IGNORE_INDEX|\brole\b")
_ADDS_NOTHING = re.compile(r"qwen|smollm|gpt2|gpt-neo|pythia|olmo|phi-[1-4]|starcoder|falcon", re.IGNORECASE)
"""Models whose tokenizers put nothing around a text, whatever they are asked."""


def documents_joined_later(
    script: Script, project: Project, ends: re.Pattern[str], block: re.Pattern[str], trains: re.Pattern[str]
) -> Iterator[Said]:
    """ends: what may stand between documents; block: names of a length that is cut to."""
    cut = _joined_and_cut(script, block)
    if cut is None:
        return
    near = connected(script, project)
    sources = [code(one) for one in near]
    if not any(trains.search(one) for one in sources) or any(_CHATS.search(one) for one in sources):
        return
    text = "\n".join(sources)
    if ends.search(_without_pads(text)):
        return
    found = next(((one, call) for one in near for call in _tokenised(one, project)), None)
    if found is None:
        return
    home, call = found
    yield Finding(
        f"`{ast.unparse(call)[:70]}` gives documents no end or beginning, and they are joined and cut into blocks then: the"
        " model never sees where a document ends, and learns to go on in another one.",
        place=place_of(home, call),
        also=(place_of(script, cut),),
        evidence=Evidence(Level.TEXT, {"joined": ast.unparse(cut)[:80], "between": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Put `tokenizer.eos_token_id` behind each document's ids (or the beginning token before them).",
            effort=Effort.LINE,
            accuracy="Ends of documents are learned.",
            measure="Decode one block.",
        ),
    )


def _without_pads(text: str) -> str:
    """`tokenizer.pad_token = tokenizer.eos_token` puts nothing between documents, nor does a generation's end."""
    return re.sub(r"[^\n]*\bpad_token(_id)?\b[^\n]*", "", text)


def _joined_and_cut(script: Script, block: re.Pattern[str]) -> ast.expr | None:
    """Where a function makes one sequence of a batch's, and cuts it into pieces of one length."""
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.FunctionDef) or any(isinstance(one, ast.FunctionDef) for one in room.body):
            continue
        cuts = any(
            isinstance(one, ast.Slice) and one.upper is not None and block.search(ast.unparse(one.upper))
            for one in ast.walk(room)
        ) or re.search(
            r"\.(?:view|reshape)\(-1, \w*(?:block|seq|ctx|context|len)"
            r"|\[(\w+):\1 \+ (\w+)\][^\n]* in range\(0, [^\n]*, \2\)",
            ast.unparse(room),
        )
        for one in ast.walk(room) if cuts else ():
            if isinstance(one, ast.Call) and one.args and _FLATTENS.search(ast.unparse(one.func)):
                return one
            if isinstance(one, ast.Call) and re.match(r"sum\(.*, \[\]\)$", ast.unparse(one)):
                return one
            if isinstance(one, ast.ListComp) and len(one.generators) == 2 and isinstance(one.elt, ast.Name):
                inner = one.generators[1]
                if ast.unparse(inner.target) == one.elt.id and ast.unparse(inner.iter) == ast.unparse(
                    one.generators[0].target
                ):
                    return one
    return None


def _tokenised(script: Script, project: Project) -> Iterator[ast.Call]:
    """Texts as they are, by a tokenizer that is told to add nothing, or that adds nothing by itself."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call) or not node.args or not _TOKENIZES.search(ast.unparse(node.func)):
            continue
        if not _ROWS.match(ast.unparse(node.args[0])):
            continue
        words = {one.arg: ast.unparse(one.value) for one in node.keywords}
        if None in words:
            continue
        told = words.get("add_special_tokens")
        if (
            told == "False"
            or "encode_ordinary" in ast.unparse(node.func)
            or (told != "True" and _adds_nothing(project))
        ):
            yield node


def _adds_nothing(project: Project) -> bool:
    names = [job.get("model_name_or_path") for job in project.jobs]
    return bool(names) and all(isinstance(one, str) and _ADDS_NOTHING.search(one) for one in names)
