"""A suite, and once more each test of it that failed, alone, where these are few.

    .ci/suite.py TARGET ("long" | "not long")      of the Makefile

A test that fails twice fails the suite. One that passes alone is unsteady: a defect that is to be mended, and is named last,
but no reason to refuse a change that has nothing to do with it. Of 9,000 tests, many of which start processes, one in some
runs met a host that was slower, or faster, than any before.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 5
"""Tests that are tried once more. More at a time have a cause in common."""

CACHE = Path(".pytest_cache/v/cache/lastfailed")
_SUMMARY = re.compile(r"^(?P<failed>\d+) failed, \d+ passed.* in [\d.]+s", re.MULTILINE)


def worth_a_second_try(output: str, failed: Sequence[str]) -> bool:
    """Whether pytest, by its output, came to its end, and all that failed is `failed`, which are few tests."""
    summary = _SUMMARY.search(output)
    if summary is None or " error" in summary[0] or "INTERNALERROR" in output:
        return False
    return 0 < len(failed) <= MOST and int(summary["failed"]) == len(failed)


def main(target: str, marked: str) -> int:
    CACHE.unlink(missing_ok=True)
    output = []
    with subprocess.Popen(["make", target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as suite:
        assert suite.stdout is not None
        for line in suite.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            output.append(line)
    if suite.returncode == 0:
        return 0
    failed = list(json.loads(CACHE.read_text())) if CACHE.exists() else []
    if not worth_a_second_try("".join(output), failed):
        return 1
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    once_more = [sys.executable, "-m", "pytest", "-m", marked, "--last-failed", "--last-failed-no-failures", "none"]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # as the Makefile has them
    if subprocess.run(once_more, env=alone, check=False).returncode:
        return 1
    for test in failed:
        print(f"unsteady: {test} failed, and passed when it was tried again alone: mend it")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
