"""Attention that a module writes out: products, softmax, products, where one fused kernel computes the same."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import on_device, place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_FUSED = re.compile(
    r"scaled_dot_product_attention|flash_?attn|xformers|flex_attention|memory_efficient_attention|MultiheadAttention"
)
_OTHER_SCORES = re.compile(
    r"tanh|sigmoid|relu\(|topk|sparsemax|entmax|logsumexp|sinkhorn|\bsinks?\b|softcap|soft_cap|gumbel|distance|cdist"
    r"|dist(?:s|ance)?\b|talking|(?:torch\.)?cat\(\s*\[\s*(?:att|scores|sink|logits)",
    re.IGNORECASE,
)
"""What makes scores that the kernel does not compute."""

_QUERY = re.compile(r"(?:^|[._])(?:q|qs|query|queries|xq|q_\w+|query_\w+)$", re.IGNORECASE)
_KEY = re.compile(r"(?:^|[._])(?:k|ks|key|keys|xk|k_\w+|key_\w+)$", re.IGNORECASE)
_VALUE = re.compile(r"(?:^|[._])(?:v|vs|value|values|xv|v_\w+|value_\w+)$", re.IGNORECASE)
_TURNS = re.compile(r"\.(?:transpose|permute|mT\b|swapaxes|T\b)|\.t\(\)|rearrange\(")


def attention_by_hand(script: Script, project: Project) -> Iterator[Said]:
    if "softmax" not in script.source or not re.search(r"matmul|einsum|bmm|@", script.source):
        return
    near = connected(script, project)
    sources = [code(one) for one in near]
    if not any(TRAINS.search(one) for one in sources) or any(_FUSED.search(one) for one in sources):
        return
    if not any(on_device(one) for one in near):
        return
    for room in ast.walk(script.tree):
        if not isinstance(room, ast.FunctionDef) or "softmax" not in (text := ast.unparse(room)):
            continue
        scores = next((one for one in own_nodes(room) if _is_scores(one)), None)
        if scores is None or _OTHER_SCORES.search(text):
            continue
        softmax = next((one for one in own_nodes(room) if _is_softmax(one)), None)
        mixed = any(_is_mix(one) for one in own_nodes(room))
        if softmax is None or not mixed or _keeps_weights(room):
            continue
        yield _finding(script, scores)
        return


def _operands(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Of a product of matrices, however it is written."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "einsum" and len(node.args) == 3:
        return node.args[1], node.args[2]
    if name in ("matmul", "bmm") and len(node.args) == 2:
        return node.args[0], node.args[1]
    if name in ("matmul", "bmm") and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
        return node.func.value, node.args[0]
    return None


def _is_own(node: ast.expr) -> bool:
    return ast.unparse(node).startswith("self")


def _bare(node: ast.expr) -> str:
    """`k` of `k.transpose(-2, -1)`, `self.k(x)` and `(k * scale)`."""
    while True:
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _is_own(node.func.value):
            theirs = ast.unparse(node.func.value) in ("torch", "F", "einops")
            if theirs and not node.args:
                return ""
            node = node.args[0] if theirs else node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
            node = node.value
        else:
            return ast.unparse(node)


def _is_scores(node: ast.AST) -> bool:
    pair = _operands(node)
    if pair is None or not _QUERY.search(_bare(pair[0])) or not _KEY.search(_bare(pair[1])):
        return False
    return bool(_TURNS.search(ast.unparse(pair[1]))) or "einsum" in ast.unparse(node)


def _is_softmax(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "softmax":
        return False
    return bool(re.search(r"dim=-1|dim=3|, -1\)|\(-1\)|, 3\)", ast.unparse(node)))


def _is_mix(node: ast.AST) -> bool:
    pair = _operands(node)
    return pair is not None and bool(_VALUE.search(_bare(pair[1])))


def _keeps_weights(room: ast.FunctionDef) -> bool:
    """They are handed out or stored, which no fused kernel does."""
    weights = {
        one.targets[0].id
        for one in own_nodes(room)
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and any(_is_softmax(part) for part in ast.walk(one.value))
    }
    for node in own_nodes(room):
        given_out = isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple | ast.Dict)
        if given_out and any(isinstance(one, ast.Name) and one.id in weights for one in ast.walk(node)):
            return True
        stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
        held = ((isinstance(one, ast.Name) and one.id in weights) or _is_softmax(one) for one in ast.walk(node))
        if stored and any(held):
            return True
    return False


def _finding(script: Script, scores: ast.AST) -> Finding:
    return Finding(
        f"`{' '.join(ast.unparse(scores).split())[:60]}`, its softmax and the product with the values are written out: the"
        " scores of every token against every other go to memory and stay there for the backward pass;"
        " `F.scaled_dot_product_attention` computes the same without them.",
        place=place_of(script, scores),
        evidence=Evidence(Level.TEXT, {"attention": "written out", "fused kernel": None}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.NUMERIC,
            "Call `F.scaled_dot_product_attention(q, k, v, is_causal=True)` (or `attn_mask=`, `dropout_p=`, `scale=`).",
            effort=Effort.MINUTES,
            accuracy="Sums round otherwise.",
            measure="dynotune profile -- python train.py",
        ),
    )
