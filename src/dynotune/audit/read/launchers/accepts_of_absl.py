"""Which flags absl takes: those that the files of a program define, and its own."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.script import Script
from dynotune.audit.read.python.bindings import last

_OWN = frozenset(
    [
        "help",
        "helpfull",
        "helpshort",
        "helpxml",
        "flagfile",
        "undefok",
        "v",
        "verbosity",
        "logger_levels",
        "logtostderr",
        "alsologtostderr",
        "log_dir",
        "stderrthreshold",
        "showprefixforinfo",
        "run_with_pdb",
        "pdb",
        "pdb_post_mortem",
        "run_with_profiling",
        "profile_file",
        "use_cprofile_for_profiling",
        "only_check_args",
        "pymock",
        "test_random_seed",
        "test_srcdir",
        "test_tmpdir",
    ]
)
_RUNS = re.compile(r"\bapp\.run\(")
_OTHERS_DEFINE = re.compile(
    r"^\s*(?:import|from)\s+(?:jax|tensorflow|flax|ml_collections|seqio|t5\w*|clu)\b", re.MULTILINE
)
"""Libraries that define flags of their own."""


def flags_of_absl(script: Script, others: Mapping[str, Script]) -> frozenset[str] | None:
    """By destination; None: absl does not read the command line here, or other flags may be defined."""
    if not _RUNS.search(script.source) or not any(one.startswith("absl") for one in script.imports.values()):
        return None
    defining = [one for one in {script.file: script, **others}.values() if "DEFINE_" in one.source]
    if not defining or any(_OTHERS_DEFINE.search(one.source) for one in (script, *defining)):
        return None
    found = [name for one in defining for name in _defined(one.tree)]
    return None if None in found else _OWN.union(name for name in found if name is not None)


def _defined(tree: ast.Module) -> Iterator[str | None]:
    """Names of flags, `no` in front of switches too; None: one whose name is worked out."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not last(node.func).startswith("DEFINE_"):
            continue
        named = next((one.value for one in node.keywords if one.arg == "name"), node.args[0] if node.args else None)
        name = named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
        yield name
        if name is not None and last(node.func).startswith("DEFINE_bool"):
            yield f"no{name}"
