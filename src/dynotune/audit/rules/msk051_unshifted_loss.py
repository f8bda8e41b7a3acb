"""MSK051: a loss of one's own compares the prediction at a token with that token, not with the next."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.labels_at_other_tokens import labels_at_other_tokens

_CAUSAL = re.compile(r"ForCausalLM\b|LMHeadModel\b")
_OTHERWISE = re.compile(r"Seq2Seq(LM|Trainer)|MaskedLM|TokenClassification|SequenceClassification|num_labels|mlm=True")
_SHIFTS = re.compile(r"(\[|, )1:|:-1\b|shift|\broll\(|\.narrow\(|\bpad\(\w*labels", re.IGNORECASE)
_FLAT = re.compile(r"\.(view|reshape)\(|\.flatten\(|\.transpose\(1, 2\)|\.permute\(0, 2, 1\)")
_LABELS = re.compile(r"\b\w+(\['(labels|input_ids)'\]|\.(pop|get)\('labels'\)|\.labels\b|\.input_ids\b)")


_OF_ROWS = re.compile(r"labels|input_ids|targets?\b")
_DEFINED = (ast.FunctionDef, ast.ClassDef)


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _gathered(script, project)
    yield from labels_at_other_tokens(script, project)
    made = {call.result for call in script.calls_of("CrossEntropyLoss") if call.result}
    losses = [
        call
        for call in script.calls
        if call.in_training_loop
        and (call.name.endswith("functional.cross_entropy") or _called(call) in made or call.name in made)
    ]
    if not losses:
        return
    every = together(script, project)
    if not any(_CAUSAL.search(one.source) for one in every) or any(_OTHERWISE.search(one.source) for one in every):
        return
    for call in losses:
        node, function = _of(script, call)
        if node is None or function is None or len(node.args) < 2:
            continue
        logits, labels = (_followed(argument, function) for argument in node.args[:2])
        compared = re.search(r"\.logits\b", logits) and _FLAT.search(logits) and _LABELS.search(labels)
        # Rows may be shifted before they come here: by a collator, or in the data.
        if not compared or any(_shifts(one) for one in project.scripts):
            continue
        yield _finding(script, node, {"logits": logits[:80], "labels": labels[:80]})


def _called(call: Call) -> str:
    return f"{call.on}{call.name}" if call.on and call.name.startswith(".") else call.name


def _finding(script: Script, node: ast.Call, facts: dict[str, str]) -> Finding:
    return Finding(
        f"`{' '.join(ast.unparse(node).split())[:60]}` compares the logits at each token with that same token: the model"
        " sees it, and learns to copy it instead of to predict the next one.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, facts),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Shift: `logits[:, :-1]` against `labels[:, 1:]` (and every weight of a token with its label).",
            effort=Effort.MINUTES,
            accuracy="The next token is learned. A loss that falls to nearly nothing in a few steps was the copy's.",
            measure="Compare with `model(**batch, labels=labels).loss` on one batch.",
        ),
    )


def _gathered(script: Script, project: Project) -> Iterator[Said]:
    """Log-probabilities of rows, taken at the token itself."""
    every = together(script, project)
    if not any(_CAUSAL.search(one.source) for one in every) or any(_OTHERWISE.search(one.source) for one in every):
        return
    if "log_softmax" not in script.source or any(_shifts(one) for one in project.scripts):
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        text = ast.unparse(function)
        own = re.search(r"\.logits\b", text) and "log_softmax" in text and not _SHIFTS.search(text)
        gather = next((one for one in ast.walk(function) if isinstance(one, ast.Call) and _is_gather(one)), None)
        if own and gather is not None and any(call.loop for call in script.calls if call.name == function.name):
            yield _finding(script, gather, {"function": function.name})
            return


def _is_gather(call: ast.Call) -> bool:
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr == "gather"
        and bool(re.search(r"label|ids|target", ast.unparse(call)))
    )


def _of(script: Script, call: Call) -> tuple[ast.Call | None, ast.FunctionDef | ast.Module | None]:
    """The call's node, and the function around it; the file, where there is none."""
    functions = [
        one
        for one in ast.walk(script.tree)
        if isinstance(one, ast.FunctionDef) and one.lineno <= call.place.line <= (one.end_lineno or 0)
    ]
    for function in (*functions, *(() if functions else (script.tree,))):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.lineno == call.place.line and place_of(script, node) == call.place:
                return node, function
    return None, None


def _followed(node: ast.expr, function: ast.FunctionDef | ast.Module) -> str:
    """The expression with what its names are assigned to in the function, if each is assigned once."""
    text = ast.unparse(node)
    for _ in range(4):
        for name in _names(ast.parse(text, mode="eval")):
            given = [
                one.value
                for one in ast.walk(function)
                if isinstance(one, ast.Assign) and any(ast.unparse(target) == name for target in one.targets)
            ]
            if len(given) == 1 and name not in _names(given[0]):
                value = f"({ast.unparse(given[0])})".replace("\\", r"\\")
                text = re.sub(rf"(?<![\w.'\"]){name}\b(?!['\"]|\s*=[^=])", value, text)
        if len(text) > 2000:
            return ""
    return text


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _shifts(script: Script) -> bool:
    """A function, or code outside of any, that has to do with labels moves rows by one."""
    if not _OF_ROWS.search(script.source):
        return False
    texts = [ast.unparse(node) for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)]
    texts.append("\n".join(ast.unparse(node) for node in script.tree.body if not isinstance(node, _DEFINED)))
    return any(_OF_ROWS.search(text) and _SHIFTS.search(text) for text in texts)


_LOSS = """import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")


class Smoothed(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        logits = model(**inputs).logits
{shift}        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), label_smoothing=0.1)
"""
RULE = Rule(
    code="MSK051",
    name="unshifted-loss",
    summary="A loss compares predictions with other tokens than the next, or masks others than the prompt's.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="transformers' causal models take labels that stand at their own tokens, and shift them by one inside. A loss"
        " that is computed from `outputs.logits` has to do that itself.",
        why="The logits at a token have seen it: copying it is learned in a few steps, and the text that the model then"
        " writes repeats one token.",
        detected="E0: at each step of a causal language model's training, `cross_entropy` of all of `.logits` against all of"
        " a batch's `labels`, and no function of the project that names labels moves anything by one; or"
        " `ids[:, :-1]` with labels `ids[:, 1:]` for a model that shifts them itself; or labels that are masked by the"
        " number of a prompt's characters.",
        proven="`model(**batch, labels=labels).loss` and the loss of one's own differ on one batch.",
        deliberate=("The rows were shifted before the project's code sees them.",),
        sources=("transformers' `ForCausalLMLoss`, which shifts labels",),
    ),
    bad=Example({"train.py": _LOSS.format(shift="")}, says="that same token"),
    good=Example({"train.py": _LOSS.format(shift="        logits, labels = logits[:, :-1], labels[:, 1:]\n")}),
)
