"""The batch of a loop that somebody wrote in PyTorch, where no `DataLoader` and no Accelerate names it: how many
micro-batches it accumulates, and how many windows it draws."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.model import Said
from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.value import Value

_STEPS = re.compile(r"(?:optim\w{0,40}|(?:^|\.)(?:opt|scaler))\.step$", re.IGNORECASE)
_COUNTS = re.compile(r"accum|grad_acc|\bgas\b|micro", re.IGNORECASE)
_ROWS = re.compile(r"batch|\bbsz?\b|\bB\b", re.IGNORECASE)


def accumulated(evaluator: Evaluator, loops: Sequence[ast.AST]) -> Iterator[Said]:
    """Over how many micro-batches the loops accumulate: `if (i + 1) % N == 0` around the optimizer's step, or a loop over N
    micro-batches before it. 1 where it steps at every turn, for sure. Nothing: it cannot be told."""
    module = evaluator.module
    if any("accelerat" in name or "deepspeed" in name or "lightning" in name for name in module.imports.values()):
        return
    steps = [site for site in module.sites if site.loops and _STEPS.search(ast.unparse(site.node.func))]
    counts = {ast.unparse(one): (one, site) for site in steps for one in _every(module, site)}
    counts |= {
        ast.unparse(one): (one, site)
        for site in module.sites
        if site.loops and site.loops[-1] in loops and not _STEPS.search(ast.unparse(site.node.func))
        for one in _over_micro_batches(site.loops[-1])
    }
    if len(counts) == 1:
        node, site = next(iter(counts.values()))
        yield Said(
            "gradient_accumulation_steps",
            ast.unparse(node),
            evaluator.fresh().value(node, site.scope),
            module.place(node),
        )
    elif not counts and len(steps) == 1 and _at_every_turn(steps[0]) and not _COUNTS.search("\n".join(module.lines)):
        yield Said("gradient_accumulation_steps", "", Value(1), module.place(steps[0].node))


def _every(module: Module, site: Site) -> Iterator[ast.expr]:
    """N of conditions `... % N == 0` in the loop that a call stands under, or behind."""
    for node, _ in site.branches:
        test = node.test if isinstance(node, ast.If) else None
        names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)} if test is not None else set()
        tests = [test] if test is not None else []
        for name in names:  # `last = (i + 1) % accum == 0`, asked for below
            tests += [one.value for one in module.bound(name, site.scope) if one.value is not None and not one.path]
        for one in tests:
            for inner in ast.walk(one):
                turns = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mod)
                if isinstance(inner, ast.BinOp) and turns and _COUNTS.search(ast.unparse(inner.right)):
                    yield inner.right


def _over_micro_batches(loop: ast.AST) -> Iterator[ast.expr]:
    """N of `for micro in range(N)`."""
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1:
        named = isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"
        if named and _COUNTS.search(f"{ast.unparse(loop.target)} {ast.unparse(loop.iter.args[0])}"):
            yield loop.iter.args[0]


def _at_every_turn(site: Site) -> bool:
    """Under no condition, but of the loop and of what asks whether a loss or a scale is finite."""
    return all(part == "loop" or isinstance(node, ast.With | ast.For | ast.While) for node, part in site.branches)


def drawn(reads: Sequence[Evaluator]) -> Iterator[Said]:
    """Rows of a batch whose windows are drawn: `torch.randint(len(data) - T, (batch_size,))`."""
    for reader in reads:
        for site in reader.module.sites:
            if reader.module.dotted(site.node.func) not in ("torch.randint", "numpy.random.randint"):
                continue
            sizes: list[ast.expr] = [one for one in site.node.args if isinstance(one, ast.Tuple | ast.List)]
            sizes += [one.value for one in site.node.keywords if one.arg == "size"]
            for size in sizes:
                count = size.elts[0] if isinstance(size, ast.Tuple | ast.List) and len(size.elts) == 1 else size
                if _ROWS.search(ast.unparse(count)) and not isinstance(count, ast.Tuple | ast.List):
                    value = reader.fresh().value(count, site.scope)
                    if type(value.value) is int and not value.others:
                        yield Said("per_device_train_batch_size", ast.unparse(count), value, reader.module.place(count))
                        return
