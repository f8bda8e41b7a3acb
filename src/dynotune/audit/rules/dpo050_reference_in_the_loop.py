"""DPO050: a loop computes the reference's log-probabilities at every step."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_REFERENCE = re.compile(r"(self\.)?(ref|reference)(erence)?_?(model|policy)?$|\w*_ref(_model)?$|frozen_(model|policy)$")
_PAIRS = re.compile(r"\bchosen\b|\brejected\b|chosen_|logsigmoid", re.IGNORECASE)
_GENERATES = re.compile(r"\.generate\(|rollout|GRPO|PPO|kl_|teacher", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    if not _PAIRS.search(script.source) or _GENERATES.search(script.source):
        return
    frozen = _frozen(connected(script, project))
    for passes in _every_step(script, project, frozen):
        if not passes:
            continue
        first, *more = passes
        yield Finding(
            f"`{first.name.removeprefix('.') or first.on}(...)` scores every pair again with a model that never"
            f" changes: a forward"
            " pass of four at every step, and its weights in memory throughout.",
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
                breaks="A row must be told by its content: what is kept is wrong after a change of template or"
                " truncation.",
                measure="dynotune profile -- python train.py",
            ),
            also=tuple(call.place for call in more),
        )


def _every_step(script: Script, project: Project, frozen: frozenset[str]) -> Iterator[list[Call]]:
    """Forward passes of a model that stays as it is: of each loop, or where a loop elsewhere has its loss of pairs made."""
    looping = False
    for loop in loops(script):
        looping = True
        yield [call for call in loop.calls if call.each_step and _is_forward(script, call, frozen)]
    if looping or "logsigmoid" not in script.source:
        return
    if not any(True for one in connected(script, project) for _ in loops(one)):
        return
    passes = [call for call in script.calls if _is_forward(script, call, frozen)]
    for function in {_function(call) for call in passes}:
        if any(_function(one) == function and one.name.endswith("logsigmoid") for one in script.calls):
            yield [call for call in passes if _function(call) == function]
            return


def _function(call: Call) -> str:
    return ".".join(around.name for around in call.around if around.kind in ("function", "class"))


def _frozen(scripts: Sequence[Script]) -> frozenset[str]:
    """Models that are loaded or copied, and set to get no gradient."""
    found = set()
    for one in scripts:
        made = {
            call.result for call in one.calls_of("from_pretrained", "deepcopy", "create_reference_model") if call.result
        }
        for name in made:
            word = rf"\b{re.escape(name)}"
            stays = rf"{word}\b(?:\.\w+\([^()\n]{{0,60}}\))*\.requires_grad_\(\s*False|{word}\.eval\(\)"
            if re.search(stays, one.source) and not re.search(rf"{word}\.train\(\)", one.source):
                found.add(name)
    return frozenset(found)


def _is_forward(script: Script, call: Call, frozen: frozenset[str]) -> bool:
    """It is called without gradients, or given as the first argument to what scores rows with it."""
    if call.on not in ("", "self") or not _without_gradients(script, call):
        return False
    text = text_at(script, call.place)
    called = re.match(r"[\w.]+", text)
    first = re.match(r"[\w.]+\(\s*([\w.]+)\s*[,)]", text)
    names = [found for found in (called and called[0], first and first[1]) if found]
    return any(_REFERENCE.fullmatch(name) or name in frozen for name in names)


def _without_gradients(script: Script, call: Call) -> bool:
    held = [around.name for around in call.around if around.kind == "with"]
    if any(re.search(r"no_grad|inference_mode|disable_adapter", name) for name in held):
        return True
    function = next((around.name for around in reversed(call.around) if around.kind == "function"), "")
    head = rf"@torch\.(no_grad|inference_mode)\(\)\s{{1,40}}def {re.escape(function)}\("
    return bool(function) and re.search(head, script.source) is not None


_LOOP = """import torch
import torch.nn.functional as F

for batch in train_loader:
    policy = log_probs(model(**batch["chosen"])) - log_probs(model(**batch["rejected"]))
%s    loss = -F.logsigmoid(0.1 * (policy - reference)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_EACH = """    with torch.no_grad():
        reference = log_probs(ref_model(**batch["chosen"])) - log_probs(ref_model(**batch["rejected"]))
"""
RULE = Rule(
    code="DPO050",
    name="reference-in-the-loop",
    summary="A preference loop runs its frozen reference at every step.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The reference does not learn, so its log-probabilities of a pair are the same at every epoch and in"
        " every run.",
        why="It costs a forward pass at each step and a second model's memory.",
        detected="E0: a model that is named as a reference is called without gradients at every step of a loop over"
        " chosen and"
        " rejected answers. Loops that generate, whose answers are new, are not reported.",
        proven="`dynotune profile -- python train.py` shows the forward passes of a step.",
        deliberate=(
            "The reference follows the policy (TR-DPO).",
            "One epoch over data that is seen once: only memory is saved.",
        ),
        sources=("TRL's documentation of `precompute_ref_log_probs`",),
    ),
    bad=Example({"dpo.py": _LOOP % _EACH}, says="never changes"),
    good=Example({"dpo.py": _LOOP % '    reference = batch["reference"]\n'}),
)
