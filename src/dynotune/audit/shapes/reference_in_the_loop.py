"""A loop computes the reference's log-probabilities at every step."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import helpers, loops, per_step, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_REFERENCE = re.compile(r"(self\.)?(ref|reference)(erence)?_?(model|policy)?$|\w*_ref(_model)?$|frozen_(model|policy)$")
_PAIRS = re.compile(r"\bchosen\b|\brejected\b|chosen_|logsigmoid", re.IGNORECASE)
_GENERATES = re.compile(r"rollout|\b\w*_?(?:GRPO|PPO)(?![a-z])|kl_|teacher", re.IGNORECASE)


_LOSS = re.compile(r"logsigmoid|log_sigmoid")
_WITHOUT = re.compile(r"no_grad|inference_mode|disable_adapter")
_WITHOUT_GRADIENTS = re.compile(r"@torch\.(?:no_grad|inference_mode)\(\)\s{1,40}def (\w+)\(")
_MADE = re.compile(r"\b(from_pretrained|deepcopy|create_reference_model)\(")
_STAYS = re.compile(r"\.eval\(\)|\.requires_grad_\(\s*False")


def reference_in_the_loop(script: Script, project: Project) -> Iterator[Said]:
    if _GENERATES.search(script.source) or any(call.each_step for call in script.calls_of("generate")):
        return  # answers that are new; what is generated for a look now and then changes nothing
    near = connected(script, project)
    yield from _in_helpers(script, near, project)
    if not any(_WITHOUT.search(one.source) for one in near):
        return
    if not _PAIRS.search(script.source) and not any(_LOSS.search(code(one)) for one in near):
        return
    frozen = _frozen(near)
    heads = frozenset(name for one in near for name in _WITHOUT_GRADIENTS.findall(one.source))
    for passes in _every_step(script, project, frozen, heads):
        if not passes:
            continue
        yield _said(script, passes)


def _said(script: Script, passes: Sequence[Call]) -> Finding:
    first, *more = passes
    base = any("disable_adapter" in around.name for around in first.around if around.kind == "with")
    return Finding(
        f"`{_called(script, first)}(...)` scores every pair again with "
        + (
            "the base model, which never changes: a forward pass of four at every step."
            if base
            else "a model that never changes: a forward pass of four at every step, and its weights in memory"
            " throughout."
        ),
        place=first.place,
        evidence=Evidence(Level.TEXT, {"passes": len(passes)}),
        stake=Stake(
            AtStake.TIME, 0.15, 0.25, "arithmetic: one forward of the policy's forward and backward and this one"
        ),
        remedy=Remedy(
            Risk.SAFE,
            "Score all pairs once before training and keep the sums by row; from the second epoch or run on"
            " they are free.",
            effort=Effort.HOURS,
            breaks="A row must be told by its content: what is kept is wrong after a change of template or truncation.",
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(call.place for call in more),
    )


_ANSWERS = re.compile(r"\bchosen\b|\brejected\b|chosen_|preferred|dispreferred", re.IGNORECASE)


def _in_helpers(script: Script, near: Sequence[Script], project: Project) -> Iterator[Said]:
    """A loop hands a frozen model to a function of another file, which scores rows of pairs with it."""
    if not any(_ANSWERS.search(code(one)) for one in near) or any(_GENERATES.search(one.source) for one in near):
        return
    frozen = _frozen(near)
    heads = frozenset(name for one in near for name in _WITHOUT_GRADIENTS.findall(one.source))
    for other, calls in helpers(script, project):
        if "logsigmoid" in other.source:
            continue  # which is said of that file
        given = frozen | _called_there(script, other, frozen)
        passes = [call for call in calls if _is_forward(other, call, given, heads)]
        if passes:
            yield _said(other, passes)


def _called_there(script: Script, other: Script, frozen: frozenset[str]) -> frozenset[str]:
    """What functions of the other file call what they are given of these names."""
    functions = {node.name: node for node in ast.walk(other.tree) if isinstance(node, ast.FunctionDef)}
    found = set()
    for node in ast.walk(script.tree):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in functions:
            continue
        taken = [one.arg for one in functions[name].args.args]
        pairs = [*zip(taken, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
        found |= {ours for ours, value in pairs if ours and isinstance(value, ast.Name) and value.id in frozen}
    return frozenset(found)


def _called(script: Script, call: Call) -> str:
    found = re.match(r"[\w.]+", text_at(script, call.place))
    return found[0] if found is not None else call.name


def _every_step(
    script: Script, project: Project, frozen: frozenset[str], heads: frozenset[str]
) -> Iterator[list[Call]]:
    """Forward passes of a model that stays as it is: of each loop, or where a loop elsewhere has its loss of pairs made."""
    looping = False
    for loop in loops(script):
        looping = True
        yield [call for call in loop.calls if _is_each(call) and _is_forward(script, call, frozen, heads)]
    trainers = list(per_step(script, "compute_loss", "training_step", "get_batch_loss_metrics"))
    yield [call for call in trainers if _is_forward(script, call, frozen, heads)]
    if looping or trainers or "logsigmoid" not in script.source:
        return
    if not any(True for one in connected(script, project) for _ in loops(one)):
        return
    passes = [call for call in script.calls if _is_forward(script, call, frozen, heads)]
    for function in {_function(call) for call in passes}:
        if any(_function(one) == function and one.name.endswith("logsigmoid") for one in script.calls):
            yield [call for call in passes if _function(call) == function]
            return


_OF_THE_RUN = re.compile(
    r"^(?:not )?[\w.]*(?:config|cfg|args|loss_type|opts)\b[\w.]*(?: (?:==|!=|in|is|is not) [^%]*)?$"
)


def _is_each(call: Call) -> bool:
    """At every step, or where a setting of the run says so, which stays what it is."""
    tests = [around.name for around in call.around if around.kind == "if"]
    fixed = bool(tests) and all(_OF_THE_RUN.search(re.sub(r"\w+_(?=config)", "", one)) for one in tests)
    return call.each_step or (call.in_training_loop and fixed)


def _function(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


def _frozen(scripts: Sequence[Script]) -> frozenset[str]:
    """Models that are loaded or copied, and set to get no gradient."""
    found = set()
    for one in scripts:
        made = {
            call.result for call in one.calls_of("from_pretrained", "deepcopy", "create_reference_model") if call.result
        }
        found |= {
            call.result
            for call in one.calls_of("eval", "requires_grad_", "to", "cuda")
            if call.result and _MADE.search(call.on) and _STAYS.search(text_at(one, call.place))
        }
        for name in made:
            word = rf"\b{re.escape(name)}"
            stays = rf"{word}\b(?:\.\w+\([^()\n]{{0,60}}\))*\.requires_grad_\(\s*False|{word}\.eval\(\)"
            if re.search(stays, one.source) and not re.search(rf"{word}\.train\(\)", one.source):
                found.add(name)
    return frozenset(found)


def _is_forward(script: Script, call: Call, frozen: frozenset[str], heads: frozenset[str]) -> bool:
    """It is called without gradients, or given as the first argument to what scores rows with it. heads: functions that
    take no gradients themselves."""
    if call.on not in ("", "self") or not (_without_gradients(script, call) or call.name.rpartition(".")[2] in heads):
        return False
    if any("disable_adapter" in around.name for around in call.around if around.kind == "with"):
        return re.search(r"model|policy|logp|log_prob|score|forward", call.name) is not None
    text = text_at(script, call.place)
    called = re.match(r"[\w.]+", text)
    first = re.match(r"[\w.]+\(\s*([\w.]+)\s*[,)]", text)
    names = [found for found in (called and called[0], first and first[1]) if found]
    if any(re.search(rf"^\s*{re.escape(name)} = \w+\s*$", script.source, re.MULTILINE) for name in names):
        return False  # another name of the model that is trained
    return any(_REFERENCE.fullmatch(name) or name in frozen for name in names)


def _without_gradients(script: Script, call: Call) -> bool:
    held = [around.name for around in call.around if around.kind == "with"]
    if any(re.search(r"no_grad|inference_mode|disable_adapter", name) for name in held):
        return True
    function = next((around.name for around in reversed(call.around) if around.kind == "function"), "")
    head = rf"@torch\.(no_grad|inference_mode)\(\)\s{{1,40}}def {re.escape(function)}\("
    return bool(function) and re.search(head, script.source) is not None
