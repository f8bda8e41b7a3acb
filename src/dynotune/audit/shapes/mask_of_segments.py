"""A mask of every token against every other is made for each packed batch, by the project's own code."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import attention, max_length
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.packed_rows import DENSE
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_DIAGONAL = re.compile(r"\bblock_diag\(|\[[^\]\n]*\b(\w+):([\w.]+(?: \+ [\w.]+)?), \1:\2\] = ")
"""`block_diag(*blocks)`, and `mask[row, 0, start:end, start:end] = ...`, `mask[at:at + n, at:at + n] = ...`."""

_GIVEN = re.compile(
    r"['\"](?:attention|attn|block)_?mask['\"]|attn_mask=|attention_mask=|return [^\n]*\bmask\b|return \w*mask"
    r"|^def \w*mask\w*\("
    r"|\b(?:self\.)?\w*(?:bl(?:oc)?k|layer|attn|attention|decoder)\w*\([^()\n]*\b\w*mask\b"
    r"|checkpoint\([^()\n]*\b\w*mask\b|\b\w+\([^()\n]*\bmask=\w*mask"
    r"|\bfor (?:\w+, )?(?P<one>\w+) in [^\n]*(?:bl(?:oc)?k|layer)\w*[^\n]*:\n[^\n]*\b(?P=one)\([^()\n]*\b\w*mask\b"
)
_PACKED = re.compile(r"seg|doc|pack|position_ids|boundar|cu_seqlens|lengths|sample_id|eos|bos", re.IGNORECASE)
_SPARSE = re.compile(r"create_block_mask|flex_attention|varlen|flash_attn_func")
_BY_TORCH = re.compile(r"scaled_dot_product_attention\(|MultiheadAttention\(")
SHORT = 2048
"""Tokens below which the mask is small beside the rest of the step."""


def mask_of_segments(job: Job, project: Project) -> Iterator[Said]:
    """Said of the first job whose program makes one."""
    length = max_length(job)
    if length is not None and length < SHORT:
        return
    scripts = {
        one.file: one for start in project.scripts if start.file in job.files for one in connected(start, project)
    }
    if any(_SPARSE.search(one.source) for one in scripts.values()):
        return
    used = attention(job)
    if used not in DENSE and not any(_BY_TORCH.search(one.source) for one in scripts.values()):
        return
    for script in scripts.values():
        first = next((one for one in project.jobs if {script.file, *scripts} & set(one.files)), job)
        node = _made(script) if first is job else None
        if node is not None:
            yield _finding(script, node, used)
            return


def mask_of_lightning(project: Project) -> Iterator[Said]:
    """Of a program that Lightning trains, whose settings are no job's."""
    jobs = {file for job in project.jobs for file in job.files}
    for start in project.scripts:
        if start.file in jobs or not any(_LIGHTNING.match(call.name) for call in start.calls):
            continue
        program = connected(start, project)
        if any(_SPARSE.search(one.source) for one in program):
            continue
        if not any(_DENSE_LAYERS.search(one.source) for one in program):
            continue
        for script in program:
            node = _made(script)
            if node is not None:
                yield _finding(script, node, None)
                return


_LIGHTNING = re.compile(r"(?:lightning|pytorch_lightning)\.(?:pytorch\.)?Trainer$")
_DENSE_LAYERS = re.compile(
    r"scaled_dot_product_attention\(|MultiheadAttention\(|TransformerEncoder|attn_implementation"
)


def _made(script: Script) -> ast.AST | None:
    """The statement, in a function that hands a mask on and knows of several documents in a row."""
    if "mask" not in script.source or not (
        "==" in script.source or "block_diag" in script.source or ":" in script.source
    ):
        return None
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or "mask_mod" in function.name:
            continue
        text = ast.unparse(function)
        if len(text) > 8_000 or not (_DIAGONAL.search(text) or any(_is_outer(one) for one in ast.walk(function))):
            continue
        if not _GIVEN.search(text) or not _PACKED.search(text) or not re.search(r"tril|triu|causal|<=|>=", text):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.Return | ast.AugAssign) and (
                _DIAGONAL.search(ast.unparse(node)) or any(_is_outer(one) for one in ast.walk(node))
            ):
                return node
    return None


def _is_outer(node: ast.AST) -> bool:
    """`segments[:, :, None] == segments[:, None, :]`: each of a row's numbers against every other."""
    sides: list[ast.expr] = []
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq) and len(node.comparators) == 1:
        sides = [node.left, node.comparators[0]]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("eq", "ne"):
        sides = node.args if len(node.args) == 2 else [node.func.value, *node.args]
    held = [_widened(one) for one in sides]
    return (
        len(held) == 2 and held[0] is not None and held[0] == held[1] and ast.unparse(sides[0]) != ast.unparse(sides[1])
    )


def _widened(node: ast.expr) -> str | None:
    """What is given one more axis; None: nothing is."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_wider = any(isinstance(one, ast.Constant) and one.value is None for one in parts)
        return ast.unparse(node.value) if is_wider else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("unsqueeze", "view", "reshape")
    ):
        return ast.unparse(node.func.value)
    return None


def _finding(script: Script, node: ast.AST, used: str | None) -> Finding:
    made = ast.unparse(node)
    named = f"`{used}`" if used else "the model's own attention"
    return Finding(
        f"`{made[:70]}` makes a mask of every token against every other for each batch: with one, {named} takes no flash"
        " kernel and works on all pairs of tokens, however short the documents of a row are.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"mask": made[:120], "attention": used or "default"}),
        stake=Stake(
            AtStake.TIME,
            0.05,
            0.32,
            "980 against 671 ms a step at 4 x 2048 tokens, 7B LoRA, one H200: the project's log",
        ),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Hand on `position_ids` that begin anew at each document and use `flash_attention_2`, or flex attention with a"
            " block mask of the segments.",
            effort=Effort.HOURS,
            breaks="Both need their kernels to work on the machine (`dynotune env --accelerators`).",
            measure="dynotune profile -- python train.py",
        ),
    )
