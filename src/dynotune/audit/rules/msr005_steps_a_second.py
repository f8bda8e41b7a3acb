"""MSR005: speed is judged by steps a second."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.chosen_by_steps import (
    chosen_by_steps,
    divided_across_gpus,
    picked_by_a_shell,
    swept_by_a_tool,
)

_RATE = (
    r"(?<![\d.])\d{1,9}(?:\.\d{1,9})?\s{0,4}(?:it|its|iter|iters|iterations|step|steps)"
    r"\s{0,4}(?:/|per )\s{0,4}s(?:ec(?:ond)?)?\b"
)
"""Bounded: digits or blanks without end took quadratic time."""

_JUDGES = re.compile(
    rf"{_RATE}|\b(?:it/s|its/s|steps/s(?:ec)?|steps per second|iterations per second)\b", re.IGNORECASE
)
_COMPARES = re.compile(
    r"fast|slow|speed|better|best|throughput|more|less|\bvs\b|than|was|up from|instead|\d+x\b", re.IGNORECASE
)
_BATCH = re.compile(r"batch|micro|accum|bsz|\bbs\b|pack|seq_?len|cutoff|max_len", re.IGNORECASE)


def check(project: Project, whole: Project) -> Iterator[Said]:
    held: list[tuple[str, Mapping[int, str]]] = [(one.file, one.comments) for one in project.configs]
    held += [(one.file, one.comments) for one in project.scripts]
    known = {file for file, _ in held}
    held += [(file, _comments(text)) for file, text in project.texts.items() if file not in known]
    for script in project.scripts:
        chosen = list(_chosen(script))
        yield from chosen or _in_other_shapes(script, project)
        yield from _advised(script)
    for place in (*picked_by_a_shell(project), *swept_by_a_tool(project)):
        yield replace(_finding(place, ""), message=_CHOSEN)
    for file, comments in held:
        lines = project.texts.get(file, "").split("\n")
        for line, text in comments.items():
            around = lines[max(line - 2, 0) : line + 1]
            if _JUDGES.search(text) and _COMPARES.search(text) and any(_BATCH.search(one) for one in around):
                yield _finding(Place(file, line), text)
                break
    for file, text in project.documents.items():
        yield from _told(file, text)
    for file, text in project.notes.items():  # whose lines are not those of the notebook's code
        yield from (replace(one, place=Place(file)) for one in _told(file, text))


_FASTER = re.compile(
    r"\b(fast(er|est)?|slow(er|est)?|quick(er|est)?|speed-?up|speeds?\b|best|winner|sweet spot|most|high(er|est))\b|\d+x\b",
    re.IGNORECASE,
)
_CHOSE = re.compile(
    r"\b(use|using|train with|pick(ed)?|chos(e|en)|went with|stay with|stick with|keep|default|settled|drop(s|ped)?|only"
    r"|reaches)\b",
    re.IGNORECASE,
)
"""A choice beside two rates."""

_REAL = re.compile(r"(tok(en)?s?|samples?|rows|examples|sequences)\s{0,4}(/|per|a)\s{0,4}s", re.IGNORECASE)


def _told(file: str, text: str) -> Iterator[Finding]:
    """A document that judges what a step holds by steps a second: a paragraph, or a table with the paragraph behind it."""
    lines = text.split("\n")
    blocks: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            blocks.append((number + 1, []))
        else:
            if not blocks:
                blocks.append((number, []))
            blocks[-1][1].append(line)
    blocks = [block for block in blocks if block[1]]
    for at, (start, block) in enumerate(blocks):
        whole = " ".join(block)
        table = block[0].lstrip().startswith("|")
        behind = " ".join(blocks[at + 1][1]) if table and at + 1 < len(blocks) else ""
        if not _JUDGES.search(whole) or not _BATCH.search(whole) or _REAL.search(f"{whole} {behind}"):
            continue
        judged = behind if table else whole
        two = len(re.findall(_RATE, judged, re.IGNORECASE)) > 1 and _CHOSE.search(judged)
        if two or (_FASTER.search(judged) and (table or len(re.findall(r"\d", whole)) > 1)):
            number = next(number for number, line in enumerate(block, start) if _JUDGES.search(line) or table)
            if not table:
                yield _finding(Place(file, number), whole, "text")
                return
            after, sentences = blocks[at + 1]
            chosen = next((at for at, line in enumerate(sentences, after) if _FASTER.search(line)), after)
            yield replace(_finding(Place(file, chosen), behind, "text"), also=(Place(file, number),))
            return


_ADVISES = re.compile(
    r"\b(?:higher|more|bigger|larger) (?:it/s |steps/s )?(?:is|=|means) (?:faster|better)|\bcompare\b|\bfast(?:er|est)\b"
    r"|\btune\b|\bbest\b|\bpick\b|\bchoose\b",
    re.IGNORECASE,
)


def _advised(script: Script) -> Iterator[Said]:
    """A text that the program shows, or the help of a flag: steps a second as a measure for sizes of a batch."""
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call) or not _SHOWS.search(ast.unparse(node.func)):
            continue
        flag = _text_of(node.args[0]) if node.args and ast.unparse(node.func).endswith("add_argument") else ""
        for one in (*node.args, *(word.value for word in node.keywords if word.arg == "help")):
            text = f"{flag} {_text_of(one)}"
            if not _JUDGES.search(text) or not _ADVISES.search(text) or not _BATCH.search(text):
                continue
            if not _REAL.search(text) and not re.search(r"\bsame batch|\bnot\b|n't\b|never", text):
                yield _finding(place_of(script, one), text, "text")
                return


_SHOWS = re.compile(r"(?:^|\.)(?:print|info|warning|log|echo|write|markdown|add_argument|secho)$")


def _text_of(node: ast.expr) -> str:
    """What of a string is written down."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "0" for one in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


_CHOSEN = "Batch sizes are compared by steps a second: fewer rows a step are always more of them, so the smallest wins."
_PRINTS = re.compile(r"f(?:\"[^\"\n]{0,200}|'[^'\n]{0,200})\}\s*(it|its|iter|iters|iterations|steps)/s", re.IGNORECASE)
_CHOOSES = re.compile(r"\b(fastest|best|winner)\b|\bmax\(|\bsorted\(", re.IGNORECASE)
_ANOTHER = re.compile(
    r"(tokens?|tok|rows|samples|examples|sequences)(/s|_per_s| per s|\s*a second)|\bsamples_per_second\b", re.IGNORECASE
)


_KEY = re.compile(r"\b(train_)?(steps|iters?|iterations|its?)_per_s(ec(ond)?)?\b", re.IGNORECASE)
_ORDERS = re.compile(r"\bsort(ed)?\(|\bmax\(|\bmin\(|argmax|idxmax|sort_values\(|nlargest\(|most_common\(")


def _chosen(script: Script) -> Iterator[Said]:
    """Code that goes over several batch sizes, or reads what was measured of them, and chooses by steps a second."""
    text = code(script)
    lines = text.split("\n")
    yield from _divided(script, lines)
    if not _BATCH.search(text) or _ANOTHER.search(text):
        return
    kept = _kept(script)
    for number, line in enumerate(lines, 1):
        ordered = _KEY.search(line) and (_ORDERS.search(line) or re.search(r"[\w.]+\s*[<>]=?\s*[\w.]+", line))
        if ordered or number in kept:
            yield replace(_finding(Place(script.file, number), line.strip()), message=_CHOSEN)
            return
    swept = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.For) and _SWEPT.search(ast.unparse(node.target)) and _several(node.iter)
    ]
    for number, line in enumerate(lines, 1):
        if _PRINTS.search(line) and any(number in one for one in swept):
            yield replace(_finding(Place(script.file, number), line.strip()), message=_CHOSEN)
            return
    if not _CHOOSES.search(text) or not re.search(r"for \w*(batch|bs|micro)\w*\b.* in ", text):
        return
    for number, line in enumerate(lines, 1):
        if _PRINTS.search(line) and re.search(r"batch|fast|best", line, re.IGNORECASE):
            yield replace(_finding(Place(script.file, number), line.strip()), message=_CHOSEN)
            return


_NAMED = re.compile(
    r"(?:^|[_.\"'])(?:its?|iters?|steps?)(?:_per_s(?:ec(?:ond)?)?|_s|ps)?(?:$|[_\"'\]])|(?:steps|iter\w*)_per_s",
    re.IGNORECASE,
)
_FASTER_BY = re.compile(r"speed-?_?ups?\b|\bfaster\b|\bslower\b|\bgain\b|\bratio\b", re.IGNORECASE)


_SAME = re.compile(
    r"\b(?:same|equal|identical|unchanged) (?:[a-z]+[ -])?(?:batch|bsz?\b|rows\b)"
    r"|\bassert\b[^\n]*==|\bboth\b[^\n]*\b(?:batch|bsz?|rows)\b",
    re.IGNORECASE,
)
"""What says that steps of both runs hold the same."""


def _divided(script: Script, lines: Sequence[str]) -> Iterator[Said]:
    """`speedup = its / baseline_its`, where a comment or a name beside it says that the batch was another."""
    if not _FASTER_BY.search(script.source):
        return
    rates = {
        node.targets[0].id
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and _KEY.search(ast.unparse(node.value))
    }
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            continue
        sides = [ast.unparse(one) for one in (node.left, node.right)]
        near = "\n".join(lines[max(0, node.lineno - 4) : node.lineno + 1])
        beside = "\n".join([near, *(script.comments.get(one, "") for one in range(node.lineno - 3, node.lineno + 2))])
        if not all(one in rates or _NAMED.search(one) for one in sides) or not any(one in rates for one in sides):
            continue
        if _FASTER_BY.search(near) and _BATCH.search(beside) and not _SAME.search(beside):
            text = ast.unparse(node)
            yield replace(
                _finding(Place(script.file, node.lineno), text),
                message=f"`{text}` compares steps a second of runs with other batches: what a step holds is not in it, and"
                " fewer rows a step are always more steps a second.",
            )
            return


def _in_other_shapes(script: Script, project: Project) -> Iterator[Finding]:
    for place in chosen_by_steps(script, project):
        yield replace(_finding(place, text_at(script, place)), message=_CHOSEN)
    for place, text in divided_across_gpus(script, project):
        yield replace(
            _finding(place, text),
            message=f"`{text}` compares steps a second of runs on other numbers of GPUs, each of which takes rows of its own"
            " at every step: as many steps a second on four are four times the speed.",
        )


_SWEPT = re.compile(r"(?:^|_)(?:bs|bsz|mbs|micro\w*|batch_?size\w*)(?:$|_)", re.IGNORECASE)
"""A variable that goes over batch sizes; one that goes over batches is no comparison."""


def _several(node: ast.expr) -> bool:
    """Values that are written down: `(1, 4, 8)`."""
    return isinstance(node, ast.Tuple | ast.List) and len(node.elts) > 1


def _kept(script: Script) -> set[int]:
    """Lines where a list that is put into order gets steps a second as the first part of its items."""
    ordered = set()
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        first = re.match(r"(?:sorted|max|min)\(\s*(\w+)\b", text_at(script, call.place))
        if last in ("sorted", "max", "min", "sort") and "key" not in call.arguments:
            ordered.add(call.on if last == "sort" else first[1] if first else "")
    found = set()
    for call in script.calls:
        if call.name.rpartition(".")[2] == "append" and call.on and call.on in ordered:
            head = re.match(r"[\w.]+\(\s*[(\[]([^,]{1,80}),", text_at(script, call.place))
            if head is not None and _KEY.search(head[1]):
                found.add(call.place.line)
    return found


def _comments(text: str) -> dict[int, str]:
    return {
        number: line.partition("#")[2]
        for number, line in enumerate(text.split("\n"), 1)
        if "#" in line and "#!" not in line
    }


def _finding(place: Place, text: str, what: str = "comment") -> Finding:
    return Finding(
        f"The {what} judges by steps a second (`{shorten(text, 80, placeholder='...')}`), beside what decides how much"
        f" a step holds: fewer"
        " rows a step are always more steps a second.",
        place=place,
        evidence=Evidence(Level.TEXT, {"comment": text}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Compare real tokens a second, and the loss after equal tokens.",
            measure="dynotune bench --config sft.yaml --vs other.yaml",
        ),
    )


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
RULE = Rule(
    code="MSR005",
    name="steps-a-second",
    summary="Speed is judged by steps a second.",
    group=Group.MEASURE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A comment near the batch, the length or packing says what is faster in `it/s`.",
        why='A batch was halved "for speed": the steps a second doubled and the tokens a second halved. Packing does the'
        " opposite, and was thrown away for it.",
        detected="E0: a comment with a rate of steps and a comparison, on or beside a line about what a step holds; or code"
        " that prints or reads steps a second for several batches, and takes the best by them or"
        " goes over batch sizes that it names, or a shell's loop that does; a quotient of them for runs on other numbers of"
        " GPUs.",
        proven="`dynotune bench` compares real tokens a second on the same documents.",
        deliberate=("Both settings give the same rows a step.",),
        sources=("Users' records from which Dynotune's design was made",),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}per_device_train_batch_size: 1  # faster: 3.9 it/s, was 1.2 it/s with 4\n"},
        says="steps a second",
    ),
    good=Example({"sft.yaml": f"{_SFT}per_device_train_batch_size: 1  # faster: 9,100 tokens/s, was 8,700 with 4\n"}),
)
