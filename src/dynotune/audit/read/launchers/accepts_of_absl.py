"""Which flags absl takes: those that the files of a program define, and its own."""

import ast
import re
import sys
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
_OPEN = re.compile(r"\bflags_parser\s*=|\bknown_only\b|[\"']DEFINE_")
"""The command line is read in another way, or flags are defined by a name that is worked out."""

_QUIET = frozenset(
    [
        "absl",
        "numpy",
        "scipy",
        "pandas",
        "torch",
        "torchvision",
        "torchaudio",
        "transformers",
        "datasets",
        "accelerate",
        "peft",
        "trl",
        "tokenizers",
        "safetensors",
        "huggingface_hub",
        "tqdm",
        "yaml",
        "omegaconf",
        "matplotlib",
        "sklearn",
        "PIL",
        "cv2",
        "wandb",
        "einops",
        "sentencepiece",
        "requests",
        "rich",
        "bitsandbytes",
        "evaluate",
        "deepspeed",
        "psutil",
        "sacrebleu",
        "nltk",
        "pytest",
        "jsonlines",
        "tiktoken",
        "flash_attn",
        "liger_kernel",
        "triton",
        "mlflow",
    ]
)
"""Libraries that define no flags of absl; any other may."""


def flags_of_absl(script: Script, others: Mapping[str, Script]) -> frozenset[str] | None:
    """By destination; None: absl does not read the command line here, or other flags may be defined."""
    if not _RUNS.search(script.source) or not any(one.startswith("absl") for one in script.imports.values()):
        return None
    files = {script.file: script, **others}
    defining = [one for one in files.values() if "DEFINE_" in one.source]
    if not defining or any(_OPEN.search(one.source) for one in files.values()) or _foreign(files):
        return None
    found = [name for one in defining for name in _defined(one.tree)]
    return None if None in found else _OWN.union(name for name in found if name is not None)


def _foreign(files: Mapping[str, Script]) -> bool:
    """A file imports a library of which it is not known whether it defines flags."""
    own = {part for file in files for part in file.removesuffix(".py").split("/")}
    known = _QUIET | sys.stdlib_module_names | own
    names = (name for one in files.values() for name in _imported_by(one.tree))
    return any(name not in known for name in names)


def _imported_by(tree: ast.Module) -> Iterator[str]:
    """The first parts of absolute names, those of `from x import *` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


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
