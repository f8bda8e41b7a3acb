"""How expressions of a script depend on the number of ranks, and whether it runs on several."""

import ast
import re

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import connected

RANKS = re.compile(
    r"world_?size|num_processes|n_?gpus?\b|num_gpus|gpu_count|device_count|nproc|num_devices|n_devices|ngpu|\branks\b|num_ranks"
    r"|dp_(size|world|degree)|data_parallel|\bworld\b|\bws\b|\bn_?procs?\b|\bprocs\b|\bprocesses\b|replicas|\bdevices\b|\bgpus\b"
    r"|\bcards\b|SLURM_NTASKS",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"DistributedDataParallel|\bDDP\(|init_process_group|WORLD_SIZE|get_world_size\(|\.num_processes\b|fully_shard\(|FullySharded"
)


_COUNTS = ("nproc_per_node", "num_processes", "num_gpus")


def on_several(script: Script, project: Project) -> bool:
    """A command of the project starts it, or a program that it is a part of, as several processes, or the text of one is
    written for that."""
    near = connected(script, project)
    if any(_SEVERAL.search(one.source) for one in near):
        return True
    files = {one.file for one in near}
    counts = [
        launch.launcher_flags.get(name) for launch in project.launches if launch.script in files for name in _COUNTS
    ]
    if any(count is not None and count.value not in (1, "1", None) for count in counts):
        return True
    return any((number(job, "num_processes") or 1) > 1 for job in project.jobs if files & set(job.files))


class Values(dict[str, list[ast.expr]]):
    """What each plain name, and each attribute by its last part, is given anywhere in a file."""

    def __init__(self) -> None:
        super().__init__()
        self._ranked: dict[str, bool] = {}

    def is_ranked(self, name: str) -> bool:
        """Whether any of a name's values speaks of ranks. Kept, since a name may have thousands."""
        if name not in self._ranked:
            self._ranked[name] = any(RANKS.search(ast.unparse(one)) for one in self.get(name, ()))
        return self._ranked[name]


def values_of(script: Script) -> Values:
    """Of the whole file."""
    found = Values()
    for node in ast.walk(script.tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for name in filter(None, map(last_part, targets)):
            assert isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
            if node.value is not None:
                found.setdefault(name, []).append(node.value)
    return found


def last_part(node: ast.AST) -> str:
    """`micro` of `cfg.train.micro`, `cfg["train"]["micro"]` and `micro`; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return ""


def power_of_ranks(node: ast.expr, values: Values, depth: int = 0) -> int | None:
    """The power of the number of ranks in a product: -1 in `total // micro // world_size`. None: it cannot be told."""
    if depth > 6:
        return None
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            one, two = power_of_ranks(left, values, depth + 1), power_of_ranks(right, values, depth + 1)
            return None if one is None or two is None else one + two
        case ast.BinOp(left, ast.FloorDiv() | ast.Div(), right):
            one, two = power_of_ranks(left, values, depth + 1), power_of_ranks(right, values, depth + 1)
            return None if one is None or two is None else one - two
        case ast.Call(func, args, _) if ast.unparse(func) in ("max", "int", "round", "math.ceil", "ceil", "math.floor"):
            parts = [power_of_ranks(one, values, depth + 1) for one in args]
            known = [one for one in parts if one is not None]
            return max(known, key=abs, default=0) if len(known) == len(parts) else None
        case ast.UnaryOp(_, operand):
            return power_of_ranks(operand, values, depth + 1)  # `-(-total // micro)` rounds up
        case ast.Constant():
            return 0
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        if RANKS.search(ast.unparse(node)):
            return 1
        given = values.get(last_part(node), []) if isinstance(node, ast.Name) else []
        if len(given) == 1:
            return power_of_ranks(given[0], values, depth + 1)
        if not given:
            return 0 if not isinstance(node, ast.Call) else _of_call(node)
        assert isinstance(node, ast.Name)
        return None if values.is_ranked(node.id) else 0
    return None if RANKS.search(ast.unparse(node)) else 0


def _of_call(node: ast.Call) -> int | None:
    """`os.environ.get("X", 1)` and the like are no ranks; what a function of the project returns is not looked at."""
    return 0 if re.match(r"(os\.|config|cfg|args)", ast.unparse(node)) else None


def factors(node: ast.expr) -> list[ast.expr]:
    """Of a product, as it is written; of anything else itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


def is_ranks(node: ast.expr) -> bool:
    """It is the number of processes, by its name, and nothing that is worked out from it."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Call) and bool(RANKS.search(ast.unparse(node)))
