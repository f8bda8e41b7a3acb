"""What the `#SBATCH` lines of a job file ask Slurm for."""

import re

_DIRECTIVE = re.compile(r"^#SBATCH\s+(--[a-z-]+|-[A-Za-z])(?:\s*=\s*|\s+|(?<=-[A-Za-z]))(\S+)")
_COUNT = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d+)(?:\(.*\))?")
_SHORT = {"-N": "--nodes", "-G": "--gpus"}


def directives(text: str) -> dict[str, tuple[str, int]]:
    """By long name, with dashes: the value and its line."""
    asked: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if found := _DIRECTIVE.match(line):
            asked[_SHORT.get(found[1], found[1])] = found[2], number
    return asked


def gpus_of_a_node(directives: dict[str, tuple[str, int]]) -> tuple[int, str] | None:
    """How many, and the directive that says so; None: they do not tell."""
    asked = {name: value for name, (value, _) in directives.items()}
    nodes = count(asked.get("--nodes", "1"))
    if "--gpus-per-node" in asked:
        each = count(asked["--gpus-per-node"])
        return (each, "--gpus-per-node") if each else None
    if "--gres" in asked:
        kinds = [kind.partition(":")[2] for kind in asked["--gres"].split(",") if kind.partition(":")[0] == "gpu"]
        each = count(kinds[0] or "1") if len(kinds) == 1 else None
        return (each, "--gres") if each else None
    if "--gpus" in asked:
        every = count(asked["--gpus"])
        return (every // nodes, "--gpus") if every and nodes and every % nodes == 0 else None
    return None


def count(text: str) -> int | None:
    """`4`, `a100:4` or `gpu:4(S:0-1)`."""
    found = _COUNT.fullmatch(text)
    return int(found[1]) if found is not None and len(found[1]) < 6 else None


def is_run_by_srun(file: str, text: str) -> bool:
    """A job file's text runs by `srun` the file of that name."""
    name = re.escape(file.rpartition("/")[2])
    return re.search(rf"^\s*srun\b[^\n]*\b{name}\b", text, re.MULTILINE) is not None
