"""One speed-up off and on in rows of the table beside TRL, without TRL: whole training steps, each arm a process of its own.

    python benchmarks/gpu_speedup.py fused_add_rms_norm --rows 0.5b-full,23m-full-32 --out OUT --commit COMMIT

An arm in which the speed-up is on and was not seen to run is a failure, not a figure. 23M runs replayed (`step_graphs: on`).
About 35 s an arm on an H200.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MARK = "RESULT "
ORDER = ("off", "on", "on", "off")


def measured(name: str, row: str, setting: str, dry: bool) -> dict[str, Any]:
    """One arm, in this process."""
    from benchmarks.peers import arm
    from benchmarks.peers.rows import GRAPHS, ROWS, Arm

    asked = ROWS[row].arms[GRAPHS if GRAPHS in ROWS[row].arms and not dry else "dynotune"]
    settings = {**asked.settings, "speedups": {**asked.settings.get("speedups", {}), name: setting}}
    if dry:
        settings["speedups"][name] = "auto" if setting == "on" else "off"
    result = arm.measure(replace(ROWS[row], arms={"dynotune": Arm(asked.seconds, settings)}), "dynotune", None, dry)
    seen = result["engagement"]["observations"].get(name, {})
    kept = "ms_per_step", "ms_per_step_min_max", "real_tokens_per_second", "peak_gib", "losses", "grad_norms", "seconds"
    return {"row": row, name: setting, "verdict": seen.get("verdict"), **{key: result[key] for key in kept}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speedup")
    parser.add_argument("--rows", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--dry", action="store_true", help="tiny models, two steps: shows that the command works")
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        print(MARK + json.dumps(measured(args.speedup, args.rows, args.arm, args.dry)), flush=True)
        return 0
    from benchmarks.peers.keep import provenance

    failed, arms = 0, []
    args.out.mkdir(parents=True, exist_ok=True)
    for row in args.rows.split(","):
        for setting in ORDER:
            command = [sys.executable, __file__, args.speedup, "--rows", row, "--arm", setting, "--out", str(args.out)]
            done = subprocess.run(
                [*command, *(["--dry"] if args.dry else [])], capture_output=True, text=True, check=False
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
            if done.returncode or not lines:
                failed = 1
                print(f"{row:14} {setting:4} failed: {(done.stdout + done.stderr)[-2000:]}", flush=True)
                continue
            one = json.loads(lines[-1].removeprefix(MARK))
            if setting == "on" and one["verdict"] != "engaged" and not args.dry:
                failed = 1
                print(f"{row:14} {setting:4} failed: the speed-up was {one['verdict'] or 'left out'}", flush=True)
                continue
            arms.append(one)
            ms, rate = one["ms_per_step"], one["real_tokens_per_second"]
            print(f"{row:14} {setting:4} {ms:9.2f} ms {rate:12,.0f} real tok/s", flush=True)
            command_line = f"python benchmarks/gpu_speedup.py {args.speedup} --rows {args.rows} --out OUT"
            origin = {**provenance(row, args.commit, False), "command": command_line}
            kept = args.out / f"speedup_{args.speedup}.json"
            kept.write_text(json.dumps({"speedup": args.speedup, "provenance": origin, "arms": arms}, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
