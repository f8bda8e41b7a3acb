"""Environment variables that a configuration sets: which it may, and setting them.

A configuration is passed around as data, so it may set what tunes libraries (`HF_*`, `WANDB_*`, `NCCL_*`, ...) and not
what decides which programs, shared libraries or modules are run.
"""

import os
from collections.abc import Mapping
from typing import Any

from dynotune.config.secrets import masked

CODE_PREFIXES = ("LD_", "DYLD_", "PYTHON", "BASH_FUNC_", "GIT_", "PERL5", "RUBY")
CODE_NAMES = frozenset(
    {
        *("PATH", "PATHEXT", "COMSPEC", "BASH_ENV", "ENV", "SHELL", "IFS", "PROMPT_COMMAND", "NODE_OPTIONS"),
        *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "NVCC"),
        *("CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDA_INJECTION64_PATH", "TRITON_PTXAS_PATH"),
        *(
            "TRITON_LIBCUDA_PATH",
            "TORCH_EXTENSIONS_DIR",
            "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "HF_MODULES_CACHE",
        ),
        *("GCONV_PATH", "GLIBC_TUNABLES", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "LOCPATH"),
        *("EDITOR", "VISUAL", "PAGER", "BROWSER", "JAVA_TOOL_OPTIONS", "VIRTUAL_ENV", "CONDA_PREFIX"),
    }
)


def refuse_variables(env: Mapping[Any, Any]) -> None:
    """Refuse names and values that the system cannot hold, and variables that change what code runs.

    Raises:
        ValueError: the reason with the remedy. The message holds names only, never a value.
    """
    for name, value in env.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError("the name of a variable is empty; write `NAME: value`")
        if "=" in name:
            raise ValueError(
                f"`{masked(name.partition('=')[0])}=` is not a name; write `NAME: value` for each variable"
            )
        for text, what in ((name, "the name of a variable"), (value, f"the value of `{name}`")):
            if isinstance(text, str) and not _can_be_held(text):
                raise ValueError(f"{what} holds a NUL or half a character, which no variable can; remove it")
        if name.upper() in CODE_NAMES or name.upper().startswith(CODE_PREFIXES):
            raise ValueError(
                f"`{name}` changes which programs, libraries or modules run, which a configuration may not; "
                f"set it in the shell that starts Dynotune (`export {name}=...`) and remove it here"
            )


def _can_be_held(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


_EXPORTED: dict[str, tuple[str | None, str | None]] = {}
"""Variables that configurations set in this process: what there was before, None for nothing, and what was set last."""


def export_env(env: Mapping[str, str]) -> None:
    """Set the variables of a checked configuration; before anything heavy is imported, as `HF_HOME` is read then."""
    for name, value in env.items():
        there = os.environ.get(name)
        before, exported = _EXPORTED.get(name, (there, there))
        _EXPORTED[name] = before if there == exported else there, value
    os.environ.update(env)


def without_exported() -> dict[str, str]:
    """The variables as if no configuration had set any, for a process that runs another one: of two arms of a bench neither
    inherits from the other. What was changed since by someone else stays."""
    found = dict(os.environ)
    for name, (before, value) in _EXPORTED.items():
        if found.get(name) != value:
            continue
        if before is None:
            del found[name]
        else:
            found[name] = before
    return found
