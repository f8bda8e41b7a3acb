"""The machine and its first device as JSON: `python -m dynotune.bench.workers.device`.

A process of its own: to ask for a GPU's name sets up a context on it, which would take memory from every arm.
"""

import json
import subprocess
import sys
from typing import Any

from dynotune.errors import TrainingError

CPU = "cpu"
"""Word for that process."""


def ask(*, use_cpu: bool = False) -> dict[str, Any]:
    """What that process says: `type`, `machine`, and of a GPU its `uuid`. Raises `TrainingError` where it fails.

    use_cpu: of the processor, whatever else there is.
    """
    command = [sys.executable, "-P", "-m", "dynotune.bench.workers.device", *([CPU] if use_cpu else [])]
    told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if told.returncode:
        raise TrainingError(f"the device cannot be asked what it is: {told.stderr.strip().rpartition(chr(10))[2]}.")
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def main() -> int:
    import torch

    from dynotune.bench.workers.worker import device_facts

    device = torch.device("cuda" if torch.cuda.is_available() and CPU not in sys.argv[1:] else "cpu")
    sys.stdout.write(json.dumps(device_facts(device)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
