"""Known vulnerabilities of the packages that are installed here, found by pip-audit.

    .venv-audit/bin/python .ci/audit.py .venv/bin/python

The verdict stands in the last line. `passed` and `NOT AUDITED` exit with 0, `FAILED` with 1. An answer of "nothing known"
is worth nothing from a service that knows nothing (a mirror without advisories, no network), so each is first asked for a
package that is known to be vulnerable: where it does not say so, nothing was audited, and that is what is said.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CANARY = "jinja2==2.10"  # CVE-2019-10906, a way out of the sandbox
SERVICES = ("pypi", "osv")
ACCEPTED = Path(__file__).with_name("accepted-vulnerabilities.toml")
_LIST = (
    "import importlib.metadata as m; print('\\n'.join(sorted({d.metadata['Name'] + '==' + d.version"
    " for d in m.distributions() if d.metadata['Name']})))"
)


@dataclass
class Audit:
    """What a service said: `vulnerable` is (package, version, all names of the advisory, versions that mend it)."""

    vulnerable: list[tuple[str, str, list[str], list[str]]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    audited: int = 0


def installed(python: str) -> list[str]:
    """`name==version` of every package but our own. A build's label (`2.13.0+cpu`) is unknown to every service."""
    told = subprocess.run([python, "-c", _LIST], check=True, capture_output=True, text=True).stdout
    return [line.partition("+")[0] for line in told.split() if not line.startswith("dynotune==")]


def ask(tool: list[str], service: list[str], packages: list[str]) -> Audit | str:
    """What pip-audit says of these packages, or why it could not."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "packages.txt")
        listed.write_text("\n".join(packages) + "\n")
        command = [*tool, "--requirement", str(listed), "--no-deps", "--disable-pip", "--format", "json"]
        command += ["--progress-spinner", "off", "--aliases", "on", "--desc", "off", "--timeout", "20", *service]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            return "no answer within 600 s"
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return said[-1][:300] if said else f"pip-audit ended with {done.returncode} and said nothing"
    audit = Audit()
    for one in found:
        if "skip_reason" in one:
            audit.unknown.append(f"{one['name']} ({one['skip_reason']})")
            continue
        audit.audited += 1
        for advisory in one["vulns"]:
            names = [advisory["id"], *advisory.get("aliases", [])]
            audit.vulnerable.append((one["name"], one["version"], names, advisory.get("fix_versions", [])))
    return audit


def audit_of(tool: list[str], services: list[list[str]], packages: list[str]) -> tuple[Audit | None, list[str]]:
    """The first service's answer that can be believed, and why the others' cannot."""
    why = []
    for service in services:
        name = service[-1]
        canary = ask(tool, service, [CANARY])
        if isinstance(canary, str):
            why.append(f"{name}: {canary}")
        elif not canary.vulnerable:
            why.append(f"{name}: it does not know that {CANARY} is vulnerable")
        else:
            audit = ask(tool, service, packages)
            if isinstance(audit, Audit):
                return audit, why
            why.append(f"{name}: {audit}")
    return None, why


def read_accepted(text: str) -> list[dict[str, Any]]:
    """Entries of the reviewed list; each must say what, why and until when."""
    entries: list[dict[str, Any]] = tomllib.loads(text).get("accepted", [])
    for entry in entries:
        if set(entry) != {"id", "package", "reason", "until"} or not isinstance(entry["until"], datetime.date):
            raise SystemExit(f"{ACCEPTED.name}: an entry needs id, package, reason and until (a date): {entry}")
    return entries


def verdict(
    audit: Audit | None, why: list[str], count: int, accepted: list[dict[str, Any]], today: datetime.date
) -> int:
    """Print every finding and the verdict; 1 where a vulnerability is not accepted."""
    if audit is None:
        print(f"audit: NOT AUDITED. No service with advisories can be reached from this machine ({'; '.join(why)}).")
        print(f"audit: {count} packages were not audited. Run `.ci/run audit` where there is a network.")
        return 0
    open_, matched = 0, set()
    for name, found, names, fixed in audit.vulnerable:
        mends = f"mended in {', '.join(fixed)}" if fixed else "nothing mends it yet"
        line = f"{name} {found}: {', '.join(names)} ({mends})"
        taken = [
            number
            for number, one in enumerate(accepted)
            if one["id"] in names and re.sub(r"[-_.]+", "-", one["package"]).lower() == name.lower().replace("_", "-")
        ]
        matched |= set(taken)
        if any(today <= accepted[number]["until"] for number in taken):
            one = accepted[taken[0]]
            print(f"accepted until {one['until']}: {line}: {one['reason']}")
        else:
            open_ += 1
            print(f"VULNERABLE: {line}{': its acceptance has ended' if taken else ''}")
    for number, one in enumerate(accepted):
        if number not in matched:
            print(f"no longer found, take it out of {ACCEPTED.name}: {one['package']} {one['id']}")
    for one in audit.unknown:
        print(f"not audited: {one}")
    print(
        f"audit: {'FAILED' if open_ else 'passed'}. {audit.audited} packages audited, {len(audit.unknown)} unknown to the"
        f" service, {len(audit.vulnerable)} vulnerabilities, {open_} of them not accepted."
    )
    return 1 if open_ else 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("python", help="the interpreter whose packages are audited")
    arguments.add_argument("--osv-url", help="ask this OSV service only")
    given = arguments.parse_args()
    tool = [sys.executable, "-m", "pip_audit"]
    services = [["--vulnerability-service", name] for name in SERVICES]
    if given.osv_url:
        services = [["--osv-url", given.osv_url, "--vulnerability-service", "osv"]]
    packages = installed(given.python)
    audit, why = audit_of(tool, services, packages)
    accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"))
    today = datetime.datetime.now(datetime.UTC).date()
    return verdict(audit, why, len(packages), accepted, today)


if __name__ == "__main__":
    sys.exit(main())
