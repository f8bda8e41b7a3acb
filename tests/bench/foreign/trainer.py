"""Stands in for somebody's trainer: `trainer.py JSON` sleeps as long as its seed says, and reports.

Of the JSON: `tokens`, `seconds`, `seed`, `more` (keys of the report), `says` (instead of a report), `fails` (last words),
`to` ("file" or "output"), `whole` (counts its start as training), `leaves` (a child that would outlive it).
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    asked = json.loads(sys.argv[1])
    began = time.perf_counter()
    if "fails" in asked:
        sys.stderr.write(f"loading\n{asked['fails']}\n")
        return 1
    if "leaves" in asked:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        Path(asked["leaves"]).write_text(str(child.pid))
    spread = random.Random(f"{asked.get('seed', 0)} {os.getpid()}").uniform(0.99, 1.01)
    time.sleep(asked.get("seconds", 0.0) * spread)
    if "says" in asked:
        print(asked["says"])
        return 0
    report = {"tokens": asked["tokens"], "seconds": time.perf_counter() - began, **asked.get("more", {})}
    if asked.get("to") == "file":
        Path(os.environ["DYNOTUNE_BENCH_REPORT"]).write_text(json.dumps(report))
    else:
        print(json.dumps(report))
        print(json.dumps({"event": "saved"}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
