"""A frozen model is loaded without a type beside a trained one in 16 bits, by a transformers whose default is float32."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.asked import at_least
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_MODELS = re.compile(r"\bAuto(?:Model\w*|LigerKernelForCausalLM)\.from_pretrained$|ForCausalLM\.from_pretrained$")
_FROZEN = re.compile(
    r"(?:^|_)(?:ref|reference|teacher|frozen|anchor|sft_model|old_policy)(?:$|_)|^ref\w*model", re.IGNORECASE
)
_TYPED = {"torch_dtype", "dtype", "quantization_config", "load_in_4bit", "load_in_8bit", "**"}
_HALF = frozenset({"bfloat16", "float16", "torch.bfloat16", "torch.float16", "auto", "bf16", "fp16"})
_SETS_TYPE = re.compile(r"set_default_dtype|set_default_tensor_type|zero\.Init|deepspeed\.initialize|init_inference")


def second_model_in_float32(script: Script, project: Project) -> Iterator[Said]:
    """`reference = AutoModelForCausalLM.from_pretrained(name)`, where the policy has `torch_dtype=torch.bfloat16`."""
    loads = [one for one in script.calls_of("from_pretrained") if _MODELS.search(one.name)]
    if len(loads) < 2 or _SETS_TYPE.search(script.source) or not _before_5(script, project):
        return
    typed = next((one for one in loads if _half(one) and not _FROZEN.search(_result(script, one))), None)
    for call in loads if typed is not None else ():
        name = _result(script, call)
        if not _FROZEN.search(name) or _is_typed(call) or _is_turned(script, call, name, connected(script, project)):
            continue
        yield Finding(
            f"`{name}` is loaded without a type, and transformers before 5 then makes float32 of it: twice the bytes of the"
            " trained model beside it, and its matrix products run past the GPU's matrix units or through a cast each time.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"model": name, "dtype": None, "beside": "16 bits"}),
            stake=Stake(AtStake.MEMORY, source="two bytes for each weight of a model that is only asked"),
            remedy=Remedy(
                Risk.NUMERIC,
                "Load it as the trained one: `torch_dtype=torch.bfloat16`.",
                effort=Effort.LINE,
                accuracy="Both models round alike, as the ratio of their probabilities wants it.",
                measure="dynotune profile -- python train.py",
            ),
            also=() if typed is None else (typed.place,),
        )
        return


def _before_5(script: Script, project: Project) -> bool:
    """The project asks for such a transformers."""
    pinned = project.pinned("transformers")
    if pinned is not None:
        return pinned < (5,)
    return any(script.file in job.files and at_least(job, "transformers", 5) is False for job in project.jobs)


def _result(script: Script, call: Call) -> str:
    """The variable or attribute that it is assigned to, also at the head of a chain (`.eval().cuda()`)."""
    if call.result:
        return call.result.rpartition(".")[2]
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and node.lineno <= call.place.line <= (node.end_lineno or 0):
            target = node.targets[0]
            return (
                target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
            )
        given = isinstance(node, ast.keyword) and isinstance(node.value, ast.Call)
        if given and isinstance(node, ast.keyword) and node.arg and node.value.lineno == call.place.line:
            return node.arg
    return ""


def _is_typed(call: Call) -> bool:
    return any(name in _TYPED or name.startswith("*") for name in call.arguments)


def _half(call: Call) -> bool:
    given = call.arguments.get("torch_dtype") or call.arguments.get("dtype")
    return given is not None and str(given.value) in _HALF


def _is_turned(script: Script, call: Call, name: str, near: Sequence[Script]) -> bool:
    """A cast behind it, in its own statement or of its name in any file near."""
    cast = r"\.(?:to\([^\n]*(?:float16|dtype|half)|half\(|bfloat16\()"
    lines = script.source.split("\n")[call.place.line - 1 : call.place.end_line + 2]
    statement = text_at(script, call.place) + "\n".join(lines)
    if re.search(cast, statement):
        return True
    return any(re.search(rf"\b{re.escape(name)}\b[^\n]{{0,80}}{cast}", one.source) for one in near)
