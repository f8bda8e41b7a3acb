"""A fresh Python that runs our own code on installed packages: nothing of the folder that we stand in is imported by it.

`python -c` looks for modules in the working folder first: a `torch.py` or `json.py` that lies in an audited project would be
run, with every token of the environment. It starts in an empty folder, finds installed packages alone, and gets no secret.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dynotune.config.secrets import masked, names_a_secret

_KEPT_OF_PYTHON = frozenset({"PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE"})


def run_isolated(code: str, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """Run `code`; output and error are kept. Raises `subprocess.TimeoutExpired` after `seconds`."""
    with tempfile.TemporaryDirectory(prefix="dynotune-") as empty:
        return subprocess.run(  # noqa: S603  (our own code)
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            cwd=empty,
            env=environment(os.environ),
        )


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that a package may need: none that is a secret by its name or looks, and no path into this folder."""
    kept = {
        name: value
        for name, value in given.items()
        if (not name.startswith("PYTHON") or name in _KEPT_OF_PYTHON)
        and not names_a_secret(name)
        and masked(value) == value
    }
    # An empty entry stands for the working folder; Dynotune itself may have been found by an entry that is left out.
    ours = str(Path(__file__).resolve().parents[1])
    paths = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    kept["PYTHONPATH"] = os.pathsep.join([*paths, *([ours] if ours not in paths else [])])
    # Packages start processes of their own, a compiler's for one.
    return kept | {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore"}
