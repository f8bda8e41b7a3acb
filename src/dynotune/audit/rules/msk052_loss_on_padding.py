"""MSK052: labels are the padded input, padding and all."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.copied_input import given_in, is_input
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.other_tokens_taken_out import without_other_tokens
from dynotune.audit.shapes.targets_with_padding import targets_with_padding

_MASKS = re.compile(
    r"(?<![=!]= )(?<![=!]=)-100|ignore_index|label_pad_token_id|masked_fill"
    r"|DataCollatorForLanguageModeling|DataCollatorForCompletionOnly|train_on_responses|IGNORE"
    r"|pack|group_texts|concatenat|cu_seqlens|reduction=.none"
)
"""What may take padding out of the loss. A comparison with -100 reads labels, as metrics do."""

_IMPORTS = re.compile(r"(?m)^\s*(?:from [\w.]+ )?import (?:\([^()]*\)|[^\n]*)")
_LABELS = re.compile(r"\b(labels?|targets?|lab|lbls?|y|answers?)\b|_labels\b|labels_|\btarget_ids\b")
_PAD_ID = r"(?:[\w.]*\bpad(?:_?token)?(?:_?(?:id|idx|index|value))?|PAD\w*|0)"


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _copied(script)
    yield from _collated(script, project)
    yield from _averaged(script)
    yield from targets_with_padding(script, project)
    yield from _prompts_as_padding(script, project)


_MEAN = re.compile(
    r"\(\s*(\w*loss\w*)\s*\*\s*[\w.]*mask\w*(?:\[[^\]\n]*\])?(?:\.\w+\([^()\n]*\))*\s*\)\.mean\(\)"
    r"|\bmean\(\s*(\w*loss\w*)\s*\*\s*[\w.]*mask\w*(?:\[[^\]\n]*\])?(?:\.\w+\([^()\n]*\))*\s*\)"
)
"""`(loss * mask).mean()`."""


_OF_TOKENS = re.compile(r"cross_entropy|CrossEntropy|logits|log_softmax|nll_loss|logp", re.IGNORECASE)
"""Else the mask may be of an image, and no padding."""

_BY_THE_MASK = re.compile(
    r"/\s*\(?\s*[\w.]*mask\w*(?:\.\w+\([^()\n]*\))*\.mean\(|numel\(\)\s*/\s*[\w.]*mask|mask\w*\s*/\s*[\w.]*mask\w*\.mean\("
)
"""The share of real tokens is divided out: `(loss * mask).mean() / mask.mean()`."""


def _averaged(script: Script) -> Iterator[Said]:
    """The loss of padding is made nothing, and is counted when the mean is taken."""
    if not re.search(r"reduction\s*=\s*[\"']none", script.source) or "mask" not in script.source:
        return
    if not _OF_TOKENS.search(script.source) or _BY_THE_MASK.search(code(script)):
        return
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Assign | ast.Return | ast.AugAssign) or node.value is None:
            continue
        found = _MEAN.search(ast.unparse(node.value))
        if found is not None:
            yield Finding(
                f"`{found[0]}` divides by all tokens, padding too: the loss and its gradients shrink with the padding of the"
                " batch, and rows that are padded most count least.",
                place=place_of(script, node),
                evidence=Evidence(Level.TEXT, {"mean": found[0]}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Divide by the mask's own sum: `(loss * mask).sum() / mask.sum()`.",
                    accuracy="Each real token counts the same, whatever is padded.",
                ),
            )
            return


def _collated(script: Script, project: Project) -> Iterator[Said]:
    """A collator pads labels of their own with what pads the input."""
    if "labels" not in script.source or not re.search(r"pad_sequence\(|\bpad|PAD", script.source):
        return
    if any(_MASKS.search(_OF_PROMPTS.sub("", _IMPORTS.sub("", code(one)))) for one in connected(script, project)):
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or "labels" not in ast.unparse(function):
            continue
        for value in _values_of_labels(function):
            if how := _padded(value):
                yield Finding(
                    f"Labels are padded with `{how}`, as the input is, and nothing makes -100 of it: the loss is taken on"
                    " padding as well.",
                    place=place_of(script, value),
                    evidence=Evidence(Level.TEXT, {"labels": ast.unparse(value)[:200]}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Pad labels with -100.",
                        accuracy="The loss is on real tokens alone; printed losses rise, since padding is easy.",
                        measure="Print how many labels of a padded batch are not -100, and its attention mask's sum.",
                    ),
                )
                return


_OF_PROMPTS = re.compile(
    r"\[\s*(?:-100|\w*IGNORE\w*)\s*\]\s*\*\s*(?:len\(\w*(?:p|prompt|src|source|inst|user|question|q)\w*(?:\[['\"]input_ids['\"]\])?\)"
    r"|\w*(?:prompt|src|source|start|cut)\w*)|(?m:^\s*\w*(?:IGNORE)\w*\s*=\s*-100\s*$)"
)
"""What takes the prompt out of the loss, which says nothing of padding."""


_AS_PADDING = re.compile(rf"^\[({_PAD_ID})\] \* (?:len\((\w+)(?:\[['\"]input_ids['\"]\]|\.input_ids)?\)|(\w+)) \+ ")
_OF_A_PROMPT = re.compile(r"^(?:p|src|q|n|x|user\w*|instr\w*|\w*(?:prompt|source|question|query|ctx)\w*)$")
_TAKEN_OUT = re.compile(r"-100\b|IGNORE|ignore_index|[!=]=\s*[\w.]*pad|DataCollatorForLanguageModeling")


def _prompts_as_padding(script: Script, project: Project) -> Iterator[Said]:
    """`labels = [tok.pad_token_id] * len(prompt) + answer`, for a loss that leaves out -100 and nothing else."""
    if "labels" not in script.source or "CausalLM" not in "".join(one.source for one in connected(script, project)):
        return
    if any(_TAKEN_OUT.search(code(one)) for one in connected(script, project)):
        return
    for node in ast.walk(script.tree):
        value = _given_to_labels(node)
        found = _AS_PADDING.match(ast.unparse(value)) if value is not None else None
        if found is None or value is None or not _OF_A_PROMPT.match(found[2] or found[3]):
            continue
        yield Finding(
            f"The prompt's labels are `{found[1]}`, and the model's loss leaves out -100 alone: it learns to predict that"
            " token all through the prompt.",
            place=place_of(script, value),
            evidence=Evidence(Level.TEXT, {"labels": ast.unparse(value)[:120]}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(Risk.BEHAVIOURAL, "Write -100 in its place.", accuracy="Loss on answers alone."),
        )
        return


def _given_to_labels(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Assign) and _OF_LABELS.fullmatch(ast.unparse(node.targets[0])):
        return node.value
    if isinstance(node, ast.Dict):
        return next(
            (
                v
                for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(k, ast.Constant) and k.value == "labels"
            ),
            None,
        )
    return None


_HOLDS_ROWS = re.compile(r"(?:torch|np|numpy)\.(?:tensor|LongTensor|as_tensor|stack|cat|array|asarray)")


def _values_of_labels(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a function gives to labels: at once, row by row (`labels.append(...)`), or by the name of a list of rows."""
    nodes = list(ast.walk(function))
    given = [value for node in nodes if (value := _given_to_labels(node)) is not None]
    yield from given
    called = {"labels"}
    for value in given:
        made = isinstance(value, ast.Call) and value.args and _HOLDS_ROWS.fullmatch(ast.unparse(value.func))
        rows = value.args[0] if made and isinstance(value, ast.Call) else value
        called |= {rows.id} if isinstance(rows, ast.Name) else set()
    by_name = given_in(function)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            to, value = node.func.value, node.args[0] if node.args else None
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List) and len(node.value.elts) == 1:
            to, value = node.target, node.value.elts[0]
        else:
            continue
        if value is None or not (ast.unparse(to) in called or _OF_LABELS.fullmatch(ast.unparse(to))):
            continue
        once = by_name.get(value.id, ()) if isinstance(value, ast.Name) else ()
        yield once[0] if len(once) == 1 else value


_OF_LABELS = re.compile(r"\w*labels|\w+\[['\"]labels['\"]\]")
_OF_IDS = re.compile(r"\b\w*(?:ids|tokens)\b")


def _padded(value: ast.expr) -> str:
    """What labels of several rows are filled up with, where that is not taken out of the loss; empty: they are not."""
    text = ast.unparse(value)
    if not _LABELS.search(text) and not (isinstance(value, ast.BinOp) and _OF_IDS.search(text)):
        return ""
    for call in (one for one in ast.walk(value) if isinstance(one, ast.Call)):
        if ast.unparse(call.func).rpartition(".")[2] == "pad_sequence":
            fills = [word.value for word in call.keywords if word.arg == "padding_value"] or call.args[2:3]
            with_ = ast.unparse(fills[0]) if fills else "0"
            return with_ if re.fullmatch(_PAD_ID, with_) else ""
    found = re.search(rf"\[({_PAD_ID})\] \* ", text)
    return found[1] if found is not None else ""


def _copied(script: Script) -> Iterator[Said]:
    if (
        "labels" not in script.source
        or "input_ids" not in script.source
        or _MASKS.search(without_other_tokens(_IMPORTS.sub("", code(script)), script))
    ):
        return
    collated = "DataCollatorForSeq2Seq" in code(script)
    pads = [call for call in script.calls if _pads(call) and (not collated or _pads_to_a_width(call))]
    answers = _answers(script) if pads else ()
    for where in _labelled(script) if pads else ():
        own = {one.id for one in ast.walk(where) if isinstance(one, ast.Name)}
        padded = next((call for call in pads if not _is_asked(call, answers, own)), None)
        if padded is None:
            continue
        yield Finding(
            f"Labels are `{ast.unparse(where)}` as it stands, rows are padded, and nothing sets the labels of padding to"
            " -100: the loss is taken on padding as well.",
            place=place_of(script, where),
            evidence=Evidence(Level.TEXT, {"labels": ast.unparse(where)}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Set the labels of padding to -100: where the `attention_mask` of what they are made of is 0.",
                accuracy="The loss is on real tokens alone; printed losses rise, since padding is easy.",
                measure="Print how many labels of a padded batch are not -100, and its attention mask's sum.",
            ),
            also=(padded.place,),
        )
        return


def _labelled(script: Script) -> Iterator[ast.expr]:
    """What labels are given, where it is the input as it stands."""
    rooms = [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for room in (script.tree, *rooms):
        given = given_in(room)
        for node in own_nodes(room):
            where = next((one for one in _labels(node) if is_input(one, given)), None)
            if where is not None:
                yield where


def _labels(node: ast.AST) -> list[ast.expr]:
    """The expressions that labels are given."""
    if (isinstance(node, ast.Assign) and re.search(r"\blabels\b", ast.unparse(node.targets[0]))) or (
        isinstance(node, ast.keyword) and node.arg == "labels"
    ):
        return [node.value]
    if isinstance(node, ast.Dict):
        return [
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "labels"
        ]
    return []


def _answers(script: Script) -> list[tuple[int, int, set[str]]]:
    """Of what goes into `.generate(`, and is padded to be answered: lines, and the names that they are given to."""
    asked: set[str] = set()
    spans: list[tuple[int, int, set[str]]] = []
    nodes = list(ast.walk(script.tree))
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "generate":
            given = [*node.args, *(word.value for word in node.keywords)]
            asked |= {one.id for value in given for one in ast.walk(value) if isinstance(one, ast.Name)}
            spans += [(value.lineno, value.end_lineno or value.lineno, set()) for value in given]
    for node in nodes:
        if isinstance(node, ast.Assign):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)}
            if names & asked:
                spans.append((node.value.lineno, node.value.end_lineno or node.value.lineno, names))
    return spans


def _is_asked(call: Call, answers: Sequence[tuple[int, int, set[str]]], own: set[str]) -> bool:
    """own: names in the labels, whose padding is in them whatever else it is for."""
    return any(
        start <= call.place.line <= end and call.place.end_line <= end and not names & own
        for start, end, names in answers
    )


def _pads_to_a_width(call: Call) -> bool:
    """Before DataCollatorForSeq2Seq pads a batch and gives its labels -100; `padding=True` adds nothing to one row."""
    padding = call.arguments.get("padding")
    return padding is not None and padding.value == "max_length"


def _pads(call: Call) -> bool:
    last = call.name.rpartition(".")[2]
    if any(word in call.result.lower() for word in ("prompt", "query", "question")):
        return False
    if last in ("pad_sequence", "DataCollatorWithPadding") or (last == "pad" and "tok" in call.on.lower()):
        return True
    padding = call.arguments.get("padding")
    tokenizes = "tok" in (call.on + call.name).lower() or "processor" in call.name
    return padding is not None and padding.value in (True, "max_length", "longest") and tokenizes


_SCRIPT = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")


def encode(row):
    out = tokenizer(row["text"], truncation=True, padding=True, max_length=512)
    out["labels"] = %s
    return out
"""
RULE = Rule(
    code="MSK052",
    name="loss-on-padding",
    summary="Labels are copied from padded input, and padding keeps its label.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="transformers' models skip labels of -100 and no others. The attention mask keeps padding out of"
        " attention, not out"
        " of the loss.",
        why="The model learns to predict padding behind padding. The printed loss falls with every padded token, so that it"
        " says nothing; where the padding token is the end token, ends are learned from rows that do not end.",
        detected="E0: labels are given `input_ids` as they stand, the file pads, and neither a -100 that is set nor a"
        " collator that sets it is"
        " in it; or a function fills labels of several rows up with what pads the input.",
        proven="Print how many labels of a padded batch are not -100, and its attention mask's sum.",
        deliberate=("The model's own loss skips padding.",),
        sources=("transformers' documentation: labels of causal language models",),
    ),
    bad=Example({"train.py": _SCRIPT % 'out["input_ids"].copy()'}, says="on padding"),
    also_bad=(
        Example(
            {
                "train.py": "from losses import IGNORE\n" + _SCRIPT % 'out["input_ids"].copy()',
                "losses.py": "IGNORE = -100\n",
            },
            says="on padding",
        ),
    ),
    good=Example({"train.py": _SCRIPT % '[i if m else -100 for i, m in zip(out["input_ids"], out["attention_mask"])]'}),
)
