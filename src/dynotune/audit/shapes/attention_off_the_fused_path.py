"""Attention that a program's own lines keep from the fused kernels: by the configuration's attribute, by switches of
PyTorch, or by asking a layer for its weights."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.group_of_processes import room_of
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, place_of, text_at
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_WANTED = re.compile(
    r"output_attentions|create_graph\s*=\s*True|use_deterministic_algorithms|attn_weights|\.attentions\b"
)
"""What needs the scores, a second derivative, or the same bits in each run."""

_ATTRIBUTE = re.compile(r"\.(?:config\.)?_?attn_implementation$")


def attention_off_the_fused_path(script: Script, project: Project) -> Iterator[Said]:
    if not re.search(r"attn_implementation|sdp|MultiheadAttention", script.source):
        return
    program = connected(script, project)
    sources = [code(one) for one in program]
    if not any(TRAINS.search(one) for one in sources) or any(_WANTED.search(one) for one in sources):
        return
    jobs = [job for job in project.jobs if {one.file for one in program} & set(job.files)]
    if jobs and not any(map(on_gpu, jobs)):
        return
    found = _eager(script, jobs) or _only_math(script) or _weights(script)
    if found is not None:
        yield found


def _eager(script: Script, jobs: list[Job]) -> Finding | None:
    """`config._attn_implementation = "eager"`, and `AutoConfig.from_pretrained(..., attn_implementation="eager")`."""
    if any(job.is_given("attn_implementation") for job in jobs):
        return None  # which wins, and is another finding
    models = " ".join(str(job.get("model_name_or_path")) for job in jobs).lower() + script.source.lower()
    if any(part in models for part in _NEEDED):
        return None
    for node in ast.walk(script.tree):
        eager = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == "eager"
        if isinstance(node, ast.Assign) and eager and _ATTRIBUTE.search(ast.unparse(node.targets[0])):
            return _said_eager(ast.unparse(node), place_of(script, node))
    ends = [(loop.place.end_line or loop.place.line, room_of(loop.calls[0])) for loop in loops(script)]
    for call in script.calls_of("from_pretrained", "set_attn_implementation"):
        if any(end < call.place.line and room == room_of(call) for end, room in ends):
            continue  # when all is trained
        given = call.arguments.get("attn_implementation") or (
            call.arguments.get("0") if call.name.endswith("set_attn_implementation") else None
        )
        if (
            given is not None
            and given.value == "eager"
            and not given.others
            and re.search(r"Config|set_attn", call.name)
        ):
            return _said_eager(text_at(script, call.place), call.place)
    return None


NEED_SCORES = ("gemma-2", "gemma2", "gemma-3", "gemma3", "gpt-oss", "gpt_oss", "t5", "falcon-rw")
"""Parts of names of models with soft-capped or biased scores or sinks."""

_NEEDED = (*NEED_SCORES, "mpt-")  # in a whole text "mpt" stands in every prompt


def _said_eager(text: str, place: Place) -> Finding:
    return _finding(
        f"`{' '.join(text.split())[:80]}` gives the model eager attention, which writes the scores of every token against"
        " every other to memory; `sdpa` computes the same without them.",
        place,
        "Take the line out, or write `sdpa`.",
    )


_SWITCHES = ("enable_flash_sdp", "enable_mem_efficient_sdp")


_CHECKS = re.compile(r"check|test|verif|compar|exact|naive|slow|assert", re.IGNORECASE)
"""A function that computes the same again, to hold the fused kernel against."""


def _only_math(script: Script) -> Finding | None:
    """Both fused kernels are switched off, or the one that is written out is asked for alone."""
    off: dict[str, Call] = {}
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        if any(_CHECKS.search(around.name) for around in call.around if around.kind in ("function", "class")):
            continue
        first = call.arguments.get("0") or call.arguments.get("enabled")
        if last in _SWITCHES and first is not None and first.value is False and not first.others:
            off[last] = call
        text = text_at(script, call.place)
        alone = last == "sdpa_kernel" and re.fullmatch(
            r"[\w.]+\(\s*(?:backends\s*=\s*)?\[?\s*[\w.]*SDPBackend\.MATH\s*,?\s*\]?,?\s*\)", text
        )
        both = last == "sdp_kernel" and {
            name for name in ("enable_flash", "enable_mem_efficient") if _is_off(call, name)
        } == {"enable_flash", "enable_mem_efficient"}
        if alone or both:
            return _said_math(text, call.place)
    if set(off) == set(_SWITCHES):
        return _said_math("enable_flash_sdp(False)` and `enable_mem_efficient_sdp(False)", off[_SWITCHES[0]].place)
    return None


def _is_off(call: Call, name: str) -> bool:
    setting = call.arguments.get(name)
    return setting is not None and setting.value is False and not setting.others


def _said_math(text: str, place: Place) -> Finding:
    return _finding(
        f"`{' '.join(text.split())[:90]}` leaves `scaled_dot_product_attention` the kernel that is written out: the scores"
        " of every token against every other go to memory, forwards and backwards.",
        place,
        "Take it out: PyTorch chooses the fused kernel that the shapes allow.",
    )


def _weights(script: Script) -> Finding | None:
    """`nn.MultiheadAttention` is asked for weights that nobody takes, so that it computes them."""
    layers = {
        ast.unparse(node.targets[0])
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] == "MultiheadAttention"
    }
    for node in ast.walk(script.tree) if layers else ():
        call = node.value if isinstance(node, ast.Assign | ast.Subscript) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) not in layers or not _dropped(node, script):
            continue
        if len(call.args) > 4 or any(word.arg in ("need_weights", None) for word in call.keywords):
            continue
        return _finding(
            f"`{' '.join(ast.unparse(call).split())[:60]}` is asked for its weights (`need_weights` is true by default) and"
            " nobody takes them: the layer writes the scores of every token against every other to memory instead of"
            " calling the fused kernel.",
            place_of(script, call),
            "Pass `need_weights=False`.",
        )
    return None


def _dropped(node: ast.AST, script: Script) -> bool:
    """`y, _ = attn(x, x, x)`, `attn(x, x, x)[0]`, and a name that nothing reads."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == 0
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return False
    name = ast.unparse(target.elts[1])
    read = any(
        isinstance(one, ast.Name) and one.id == name for one in ast.walk(script.tree) if one is not target.elts[1]
    )
    return name in ("_", "__") or (name.isidentifier() and not read)


def _finding(message: str, place: Place, text: str) -> Finding:
    return Finding(
        message,
        place=place,
        evidence=Evidence(Level.TEXT, {"fused kernel": None}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            text,
            effort=Effort.LINE,
            accuracy="Sums round otherwise.",
            measure="dynotune profile -- python train.py",
        ),
    )
