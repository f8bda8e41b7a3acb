"""A configuration of adapters that is made, and handed to nothing."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_KINDS = (
    "LoraConfig",
    "AdaLoraConfig",
    "PrefixTuningConfig",
    "PromptTuningConfig",
    "IA3Config",
    "LoHaConfig",
    "LoKrConfig",
)
_TRAINS = (".train(", ".fit(", ".backward(")


def adapter_that_nobody_takes(script: Script, project: Project) -> Iterator[Said]:
    """`peft_config = LoraConfig(...)`, a trainer without it, and no other adapter in the program."""
    made = [call for call in script.calls_of(*_KINDS) if call.name.startswith("peft") or call.name in _KINDS]
    if len(made) != 1 or not made[0].result.isidentifier():
        return
    near = connected(script, project)
    if leads_out(near, project) or not any(one in code(script) for one in _TRAINS):
        return
    if any(_makes(one) for one in near) or any(_imports(one, made[0].result) for one in project.scripts):
        return
    if not _is_read(script, made[0].result):
        yield _finding(made[0])


def _makes(script: Script) -> bool:
    return any(
        one in script.source
        for one in ("get_peft_model(", "add_adapter", "peft_config=", "inject_adapter", "PeftModel.", "PeftModel(")
    )


def _imports(script: Script, name: str) -> bool:
    return any(one.rpartition(".")[2] in (name, "*") for one in script.imports.values())


def _is_read(script: Script, name: str) -> bool:
    """Anything that reads the name, or everything that is there (`globals()`, a string with the name)."""
    for node in ast.walk(script.tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in (name, "globals", "locals", "exec")
        ):
            return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True
    return False


def _finding(made: Call) -> Finding:
    kind = made.name.rpartition(".")[2]
    return Finding(
        f"`{made.result} = {kind}(...)` is handed to nothing: no adapter is made, and all weights are trained instead.",
        place=made.place,
        evidence=Evidence(Level.TEXT, {"made": kind, "read": 0}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Hand it on (`peft_config={made.result}` of TRL's trainers, or `get_peft_model(model, {made.result})`), or take"
            " it out.",
            accuracy="Adapters are trained instead of all weights.",
            measure="The number of trained parameters at the beginning of the log.",
        ),
    )
