"""Promise: CI names known vulnerabilities of what is installed, and never takes a service's silence for an answer."""

import datetime
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CI = Path(__file__).parents[2] / ".ci"
TODAY = datetime.date(2026, 11, 20)


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dynotune_ci_audit", CI / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def tool(folder: Path, answers: dict[str, Any]) -> list[str]:
    """A pip-audit that knows of these packages what stands here, and skips others."""
    script = folder / "tool.py"
    script.write_text(
        "import json, sys\nfrom pathlib import Path\n"
        f"answers = json.loads({json.dumps(json.dumps(answers))})\n"
        "lines = Path(sys.argv[sys.argv.index('--requirement') + 1]).read_text().split()\n"
        "if answers.get('broken'): sys.exit('cannot resolve the name of the service')\n"
        "def told(line):\n"
        "    name, _, version = line.partition('==')\n"
        "    if name not in answers: return {'name': name, 'skip_reason': 'not found'}\n"
        "    return {'name': name, 'version': version, 'vulns': answers[name]}\n"
        "print(json.dumps({'dependencies': [told(line) for line in lines]}))\n"
    )
    return [sys.executable, str(script)]


HOLE = [{"id": "GHSA-1", "aliases": ["CVE-2019-1"], "fix_versions": ["2.10.1"]}]


def ended(audit: ModuleType, answers: dict[str, Any], folder: Path, accepted: str = "") -> int:
    found, why = audit.audit_of(
        tool(folder, answers), [["--vulnerability-service", "pypi"]], ["numpy==1.0", "torch==2.13.0"]
    )
    return int(audit.verdict(found, why, 2, audit.read_accepted(accepted), TODAY))


def test_a_vulnerability_fails_and_is_named(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(audit, {"jinja2": HOLE, "numpy": HOLE, "torch": []}, tmp_path) == 1
    assert "VULNERABLE: numpy 1.0: GHSA-1, CVE-2019-1 (mended in 2.10.1)" in capsys.readouterr().out


def test_packages_without_one_pass(audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Negative control of the test above; and what the service does not know is said."""
    assert ended(audit, {"jinja2": HOLE, "numpy": []}, tmp_path) == 0
    told = capsys.readouterr().out
    assert "not audited: torch (not found)" in told
    assert "audit: passed. 1 packages audited, 1 unknown to the service" in told


@pytest.mark.parametrize(("until", "code"), [("2026-11-20", 0), ("2026-11-19", 1)])
def test_a_vulnerability_is_accepted_until_a_day(audit: ModuleType, tmp_path: Path, until: str, code: int) -> None:
    entry = f'[[accepted]]\nid = "CVE-2019-1"\npackage = "numpy"\nreason = "not reached"\nuntil = {until}\n'
    assert ended(audit, {"jinja2": HOLE, "numpy": HOLE, "torch": []}, tmp_path, entry) == code


def test_an_acceptance_is_for_one_package(audit: ModuleType, tmp_path: Path) -> None:
    entry = '[[accepted]]\nid = "CVE-2019-1"\npackage = "torch"\nreason = "not reached"\nuntil = 2027-01-01\n'
    assert ended(audit, {"jinja2": HOLE, "numpy": HOLE, "torch": []}, tmp_path, entry) == 1


def test_an_acceptance_needs_a_reason_and_a_day(audit: ModuleType) -> None:
    with pytest.raises(SystemExit, match="needs id, package, reason and until"):
        audit.read_accepted('[[accepted]]\nid = "CVE-2019-1"\npackage = "numpy"\n')


@pytest.mark.parametrize(
    "answers", [{"numpy": [], "torch": []}, {"jinja2": [], "numpy": [], "torch": []}, {"broken": True}]
)
def test_a_service_that_knows_nothing_is_not_believed(
    audit: ModuleType, tmp_path: Path, answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A mirror without advisories answers "nothing known" to everything."""
    assert ended(audit, answers, tmp_path) == 0
    assert "NOT AUDITED" in capsys.readouterr().out


def test_the_list_of_accepted_ones_is_whole(audit: ModuleType) -> None:
    audit.read_accepted((CI / "accepted-vulnerabilities.toml").read_text())


def test_our_pins_lie_in_the_ranges_that_users_get() -> None:
    """A pin outside of pyproject.toml's range would test what nobody gets."""
    import tomllib

    from packaging.requirements import Requirement

    pinned = dict(
        line.split("==") for line in (CI / "pins.txt").read_text().splitlines() if line and not line.startswith("#")
    )
    project = tomllib.loads((CI.parent / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in ("test", "dev", "docs") for one in project["optional-dependencies"][extra]),
    ]
    checked = 0
    for line in wanted:
        one = Requirement(line)
        name = one.name.lower().replace("_", "-")
        if name != "torch":  # the Makefile's
            assert one.specifier.contains(pinned[name]), line
            checked += 1
    assert checked > 20
