"""MSR001: tokens a second that count padding."""

import ast
import re
from collections.abc import Iterator, Sequence, Set

from dynotune.audit.facts.asked import max_length
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.named_speeds import SPEED, recorded_as_speed
from dynotune.audit.facts.padded import by_hand
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.facts.together import code, connected, imported
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.bounds_told_as_speeds import (
    PEAKS,
    padding_that_was_seen,
    peak_told_as_reached,
    rows_times_the_limit,
)
from dynotune.audit.shapes.claimed_settings import without_packing

_COLLATORS = ("DataCollatorWithPadding", "DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq", "pad_sequence")
_RECTANGLE = re.compile(r"\.(new_)?(full|zeros|ones)\(\(?\[?len\(\w+\),")
_FILLED_UP = re.compile(r"\] \* \(\w+ - len\(|\bpad\(\w[^\n]*\b\w+ - (?:len\(|\w+\.(?:size|shape|numel))")
"""`ids + [pad] * (width - len(ids))`."""

_WHOLE = re.compile(
    r"(?:input_ids|\bids|tokens)(\"\]|'\])?\.(numel\(\)|nelement\(\)|size\(0\)\s*\*|shape\[0\]\s*\*)|"
    r"\b(?:batch|b|inputs|data)\[[^\]\n]{1,30}\]\.(?:numel|nelement)\(\)|"
    r"(?:torch\.numel|(?:np|math|numpy)\.prod)\([^()]*(?:input_ids|\bids|tokens)\b[^()]*\)|"
    r"\blen\([^()]*\)\s*\*\s*[\w.]*(max_?(seq_?)?len(gth)?)\b|"
    r"\b\w*(pairs|rows|examples|samples|batch\w*|steps)\b\s*\*\s*(\d+\s*\*\s*)?[\w.]*\bmax_(seq_)?len(gth)?\b|"
    r"(batch_size|bsz|\bbs\b)\w*\s*\*\s*[\w.]*(max_(seq_)?len(gth)?|seq_?len(gth)?|block_size|cutoff_len)\b",
    re.IGNORECASE,
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _of_a_script(script, project)
    for job in project.jobs:
        known = list(_of_a_document(job, project))
        yield from known or _of_figures(job, project)
        seen = padding_that_was_seen(job, project)
        if seen is not None:
            yield _of_a_count(*seen)
            break
    for figure, card, place in peak_told_as_reached(project):
        yield Finding(
            f"`{figure}` is the peak of the data sheet of {card}s, told as reached: training reaches a half of it at best,"
            " and what follows from it, tokens a second and hours, is an upper bound.",
            place=place,
            evidence=Evidence(Level.TEXT, {"claimed": figure, "peak of one": PEAKS[card]}),
            stake=Stake(AtStake.FIGURES),
            remedy=Remedy(
                Risk.SAFE, "Measure tokens a second of a short run.", measure="dynotune bench --config sft.yaml"
            ),
        )


_PRODUCT = re.compile(
    r"(?<![\d.,])(\d{1,4})\s{0,3}(?:rows|samples|sequences|seqs|examples)?\s{0,3}[x*\u00d7]\s{0,3}(\d{3,6}|\d{1,3},\d{3})"
    r"\s{0,3}(?:tokens?|tok)?\s{0,3}(?:\([^()\n]{0,20}\))?\s{0,3}[x*\u00d7]\s{0,3}[\d.]{1,8}\s{0,3}(?:it|its|steps?|iter\w*)\s{0,2}/\s{0,2}s"
    r"[^\n]{0,60}?tok",
    re.IGNORECASE,
)
"""`8 x 2048 x 3.1 it/s = 50.8k tokens/s`."""


def _of_a_document(job: Job, project: Project) -> Iterator[Said]:
    """A speed that multiplies rows by the length at which they are cut, of a job whose rows are not packed."""
    limits = {max_length(job)} - {None}
    if not limits and without_packing(job, project) is not None:
        texts = [code(one) for one in project.scripts if one.file in job.files]
        limits = {int(one) for text in texts for one in _GIVEN.findall(text)}
    elif job.get("packing") is not False and without_packing(job, project) is None:
        return
    for file, text in project.documents.items():
        for number, line in enumerate(text.split("\n"), 1):
            found = _PRODUCT.search(line)
            if found is not None and (limit := int(found[2].replace(",", ""))) in limits:
                yield Finding(
                    f"`{found[0]}` multiplies rows by the length at which they are cut: an upper bound that only rows of"
                    " that length reach, since nothing is packed.",
                    place=Place(file, number, 1, number, len(line) + 1),
                    evidence=Evidence(Level.RESOLVED, {"max_length": limit, "packing": False}),
                    stake=Stake(AtStake.FIGURES),
                    remedy=Remedy(Risk.SAFE, "Count real tokens.", measure="dynotune plan --config sft.yaml"),
                    also=(job.place("max_length"),),
                )
                return


def _of_figures(job: Job, project: Project) -> Iterator[Said]:
    limit = max_length(job)
    if limit is None or (job.get("packing") is not False and without_packing(job, project) is None):
        return
    for product, place in rows_times_the_limit(limit, project):
        yield Finding(
            f"The tokens a second are `{product}`, rows times the length at which they are cut: an upper bound that only"
            " rows of that length reach, since nothing is packed.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"max_length": limit, "packing": False}),
            stake=Stake(AtStake.FIGURES),
            remedy=Remedy(Risk.SAFE, "Count real tokens.", measure="dynotune plan --config sft.yaml"),
            also=(job.place("max_length"),),
        )
        return


def _of_a_count(place: Place, shown: Place) -> Finding:
    return Finding(
        "What the trainer counts as tokens has the padding in it, and a speed is made of it: more padding reads as faster."
        if place == shown
        else "`include_num_input_tokens_seen` counts padding with the tokens (`non_padding` does not), and a speed is made"
        " of it: more padding reads as faster.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"counts": "num_input_tokens_seen"}),
        stake=Stake(AtStake.FIGURES),
        remedy=Remedy(
            Risk.SAFE,
            "Set `include_num_input_tokens_seen: non_padding`, and divide what it counts by the time."
            if place == shown
            else "Set `include_num_input_tokens_seen: non_padding`.",
            effort=Effort.LINE,
            measure="dynotune plan --config sft.yaml",
        ),
        also=(shown,),
    )


_REAL = re.compile(r"attention_mask(\"\]|'\])?\)?\.sum\(|!=\s*[\w.]*pad_token_id|cu_seqlens|ne\([\w.]*pad")
_MADE_UP = re.compile(r"torch\.(randint|zeros|ones|full)\(")
_LOADED = re.compile(r"load_dataset|load_from_disk|AutoTokenizer|open\(|DataLoader|torch\.load\(")


_LIMIT = re.compile(
    r"(?:^|[._])(?:max_?(?:seq_?|sequence_)?len(?:gth)?|max_?tokens|max_seq|cutoff_len|model_max_length|block_size)$",
    re.IGNORECASE,
)
_ROWS = re.compile(
    r"batch|\bbs\b|bsz|steps?$|accum|rows$|examples$|samples$|pairs$|^len\(|num_update|world_size|epochs?$|(?:samples|steps)_per_second",
    re.IGNORECASE,
)


_GIVEN = re.compile(r"\b(?:max_(?:seq_)?length|max_seq_len|cutoff_len|model_max_length)\s*=\s*(\d{3,6})\b")


_SIDES = re.compile(
    r"^\s*\(?(\w+), *(\w+)\)? *= *[\w.\[\"']*(?:input_ids|\bids|tokens)[\"'\]]*\.(?:shape|size\(\))\s*$", re.MULTILINE
)
"""`rows, width = batch["input_ids"].shape`."""


def _by_its_sides(node: ast.Assign | ast.AugAssign | ast.Expr, sides: Set[tuple[str, str]]) -> str:
    """The product of both."""
    text = ast.unparse(node.value) if node.value is not None else ""
    found = (re.search(rf"\b{a} \* {b}\b|\b{b} \* {a}\b", text) for a, b in sides)
    return next((one[0] for one in found if one), "")


_BATCH_OF = re.compile(r"\b(?:per_device_train_)?(?:micro_)?(?:batch_size|bsz|bs)\s*=\s*(\d{1,4})\b", re.IGNORECASE)


def _rows_times_limit(value: ast.expr, limits: Set[str], batches: Set[str] = frozenset()) -> str:
    """A product of a number of rows and the length at which they are cut, in whatever order; empty: there is none.
    limits, batches: numbers that the file gives as such a length, and as rows of a batch."""
    for node in ast.walk(value):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        factors: list[ast.expr] = [node]
        while any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult) for one in factors):
            factors = [
                part
                for one in factors
                for part in (
                    (one.left, one.right) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult) else (one,)
                )
            ]
        texts = [ast.unparse(one).strip("\"']") for one in factors]
        cut = limits & set(texts) or any(_LIMIT.search(re.sub(r"\[['\"]", ".", one)) for one in texts)
        if cut and (any(map(_ROWS.search, texts)) or batches & set(texts) - limits):
            return ast.unparse(node)
    return ""


def _of_a_script(script: Script, project: Project) -> Iterator[Said]:
    source = script.source
    if not _WHOLE.search(source) and not ("*" in source and (SPEED.search(source) or "max_tokens" in source)):
        return
    near = connected(script, project)
    if not any(SPEED.search(one.source) for one in near) or any(_REAL.search(one.source) for one in near):
        return  # it makes no speed, or knows which tokens are real
    if _MADE_UP.search(script.source) and not any(_LOADED.search(one.source) for one in near):
        return  # rows of one length, made for the measurement
    # A callback's file has the number, and the file that trains says what it is.
    limits = {limit for one in near for limit in _GIVEN.findall(one.source)}
    sides = set(_SIDES.findall(script.source))
    batches = set(_BATCH_OF.findall(script.source))
    for node in ast.walk(script.tree):
        if isinstance(node, ast.FunctionDef):
            node = _handed_on(node) or node
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) or node.value is None:
            continue
        counted = ast.unparse(node.value)
        shows = isinstance(node, ast.Expr)  # `print(f"{len(rows) * 2048 / seconds:.0f} tokens/s")`
        product = _rows_times_limit(node.value, limits, batches) if shows else ""
        if shows and not (
            product
            and SPEED.search(counted)
            and (_BY_A_CLOCK.search(counted) or recorded_as_speed(node.value, product))
        ):
            continue
        target = _target(node)
        whole = _WHOLE.search(counted)
        found = (
            whole[0]
            if whole is not None
            else _rows_times_limit(node.value, limits, batches) or _by_its_sides(node, sides)
        )
        if found and (key := recorded_as_speed(node.value, found)):
            target = key
        if not found or not (shows or _is_a_speed(target, script, near) or _BY_A_CLOCK.search(counted)):
            continue
        bound = not re.search(r"numel|nelement|size\(0|shape\[0|prod\(", found) and not _by_its_sides(node, sides)
        limit = bound and not any(_FULL.search(_NOT_PACKED.sub("", code(one))) for one in near)
        if not limit and not any(_pads(one, project) for one in near):
            continue
        shown = counted if len(counted) <= 70 else found
        yield Finding(
            f"{f'`{target}`' if target else 'What is shown'} counts `{shown}`, padding included"
            f"{' and every row at the length where it is cut' if bound else ''}, and a speed is made of it: more padding"
            " reads as faster.",
            place=place_of(script, node),
            evidence=Evidence(Level.TEXT, {"counts": found, "as": target}),
            stake=Stake(AtStake.FIGURES),
            remedy=Remedy(
                Risk.SAFE,
                "Count `batch['attention_mask'].sum()`, added up on the device.",
                effort=Effort.LINE,
                measure="dynotune plan --config sft.yaml",
            ),
            also=tuple(_shown(script)),
        )
        return


_FULL = re.compile(
    r"pack|group_texts|block|memmap|fromfile|np\.load|view\(-1, |reshape\(-1, |chunk|position_ids|cu_seq", re.IGNORECASE
)
"""Where rows may be as long as the limit, all of them."""

_NOT_PACKED = re.compile(r"\bpacking[\"']?\s*[=:]\s*(?:bool\s*=\s*)?False\b")


def _handed_on(function: ast.FunctionDef) -> ast.Assign | None:
    """`return ids.size(0) * ids.size(1)` of a function that is called after tokens, as if a name of its own got it."""
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None or not re.search(r"tok", function.name, re.IGNORECASE):
        return None
    made = ast.Assign([ast.Name(function.name)], last.value)
    return ast.fix_missing_locations(ast.copy_location(made, last))


def _target(node: ast.Assign | ast.AugAssign | ast.Expr) -> str:
    if isinstance(node, ast.Expr):
        return ""
    return ast.unparse(node.target if isinstance(node, ast.AugAssign) else node.targets[0])


_BY_A_CLOCK = re.compile(
    r"/ \(?[\w.]*\b(time|perf_counter|monotonic|elapsed|seconds|duration|dt)\b|/ [\w.]*\[?['\"]?(train_)?runtime\b"
    r"|(?:samples|steps)_per_second"
)


def _shown(script: Script) -> Iterator[Place]:
    """Lines that make or print the speed."""
    for number, line in enumerate(script.source.split("\n"), 1):
        text = line.partition("#")[0]
        if SPEED.search(text) and "/" in text:
            yield Place(script.file, number, 1, number, len(line) + 1)


def _is_a_speed(target: str, script: Script, near: Sequence[Script]) -> bool:
    """By its name, or divided by what a clock says: of an attribute also what it grew by, and elsewhere in the program."""
    if re.search(r"tok|tps|throughput", target, re.IGNORECASE):
        return True
    owner, _, last = target.rpartition(".")
    if not owner:
        return _over_a_clock(rf"\b{re.escape(target)}", script.source)
    counter = rf"\b[\w.]{{1,80}}\.{re.escape(last)}\b(?: - [\w.]{{1,80}}\b)?\)?"
    for one in near:
        if f".{last}" not in one.source or not (one is script or SPEED.search(one.source)):
            continue
        grown = {re.escape(held) for held in re.findall(rf"^\s*([\w.]{{1,80}}) = {counter}$", one.source, re.MULTILINE)}
        if any(_over_a_clock(rf"(?<![\w.]){name}", one.source) for name in (counter, *sorted(grown))):
            return True
    return False


def _over_a_clock(counted: str, source: str) -> bool:
    divided = (
        rf"{counted}\s*/\s*\(?\s*[\w.\[\"']*(time|perf_counter|elapsed|spent|seconds|duration)"
        rf"|{counted}\s*/\s*\((?:now|end|stop|t1|t2) - [\w.]+\)"
    )
    clocks = "|".join(sorted({re.escape(one) for one in _CLOCKS.findall(source)}))
    by_a_clock = rf"{counted}\s*/\s*(?:max\()?\(?\s*(?:{clocks})(?![\w.])"
    return bool(re.search(divided, source) or (clocks and re.search(by_a_clock, source)))


_CLOCKS = re.compile(r"([\w.]+) *= *(?:time\.)?(?:time|perf_counter|monotonic)\(\)(?: *- *[\w.]+)? *$", re.MULTILINE)
"""`now` of `now = time.perf_counter()`, `took` of `took = time.time() - start`."""


def _pads(script: Script, project: Project) -> bool:
    if (
        _collates(script)
        or any(True for _ in by_hand(script))
        or _from_a_file(script)
        or any(_is_padding(script, call) for call in script.calls)
    ):
        return True
    return any(
        _collates(one) or one.calls_of(*_COLLATORS) or any(True for _ in by_hand(one))
        for one in imported(script, project)
    )


def _is_padding(script: Script, call: Call) -> bool:
    if call.name.rpartition(".")[2] in (*_COLLATORS, "pad"):
        return True
    padding = call.arguments.get("padding") if "padding" in text_at(script, call.place) else None
    return padding is not None and padding.value in (True, "max_length", "longest")


def _from_a_file(script: Script) -> bool:
    """Whole batches come out of a file, and go into the model with whatever mask they have."""
    if not re.search(r"= *torch\.load\(", script.source) or "attention_mask" in script.source:
        return False
    return bool(re.search(r"\w*model\w*\(\*\*\w+\)", script.source)) and not re.search(
        r"pack|cu_seqlens", script.source
    )


def _collates(script: Script) -> bool:
    """A function fills a rectangle of rows by width, and says by an attention mask what of it is real."""
    if "attention_mask" not in script.source:
        return False
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        text = ast.unparse(node)
        shaped = _RECTANGLE.search(text) or _FILLED_UP.search(text)
        if shaped and re.search(r"""['"]attention_mask['"]|attention_mask=""", text):
            return True
    return False


_LOOP = """import time
from transformers import DataCollatorWithPadding

collate = DataCollatorWithPadding(tokenizer)
start, tokens = time.time(), 0
for batch in train_loader:
    model(**batch).loss.backward()
    tokens += %s
print("tokens per second", tokens / (time.time() - start))
"""
RULE = Rule(
    code="MSR001",
    name="padding-counted",
    summary="A figure of tokens a second counts padding.",
    group=Group.MEASURE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`input_ids.numel()` and rows times the maximal length count what was multiplied, not what was learned"
        " from.",
        why="Padding to the longest row, or to a limit, raises the figure; packing, which trains several times"
        " faster, lowers"
        " it. People have thrown it away for that.",
        detected="E0: such a count goes into a variable of tokens, the file makes a speed of it and nowhere counts real"
        " tokens; it pads its batches, or a file that it imports from does: by a library's collator, or by filling a"
        " rectangle that has an attention mask.",
        proven="`dynotune plan` prints real and processed tokens of the data, and their ratio.",
        deliberate=("It is meant as the device's work, and is called so.",),
        sources=("Where three meanings of tokens a second are listed: torchtitan issue 4192; torchtune issue 2296",),
    ),
    bad=Example({"train.py": _LOOP % 'batch["input_ids"].numel()'}, says="padding included"),
    good=Example({"train.py": _LOOP % 'batch["attention_mask"].sum()'}),
)
