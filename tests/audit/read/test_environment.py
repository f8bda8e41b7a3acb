"""Promise: what does not work is said as that, with its error, and cannot end the audit."""

import pytest

from dynotune.audit.facts.environment import Package
from dynotune.audit.read import environment
from dynotune.audit.read.environment import read_environment


@pytest.mark.long
def test_packages_are_looked_up() -> None:
    found = read_environment(try_packages=False)
    assert found.version("torch")
    assert found.packages["torch"].works is None
    assert found.version("no-such-package") is None
    assert found.machine["cpu"]["cores"]


def test_a_machine_that_cannot_be_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_run", lambda code, seconds: ("", "the process was ended by signal 11"))
    found = read_environment(try_packages=False)
    assert found.machine["failure"] == "the process was ended by signal 11"
    assert found.version("torch")


@pytest.mark.parametrize(
    ("code", "seconds", "says"),
    [
        ("import no_such_module", 300, "No module named 'no_such_module'"),
        ("import os; os.abort()", 300, "ended by signal"),
        ("raise SystemExit(3)", 300, "exit code 3"),
        ("import time; time.sleep(3600)", 2, "no answer within 2 s"),
    ],
)
def test_a_process_that_goes_wrong_gives_its_reason(code: str, seconds: int, says: str) -> None:
    assert says in environment._run(code, seconds)[1]


def test_a_failed_import_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_run", lambda code, seconds: ("", "ImportError: undefined symbol"))
    (one,) = environment._imported({"trl": Package("trl", "1.16.0")})
    assert (one.version, one.works) == ("1.16.0", False)
    assert one.why == "import failed: ImportError: undefined symbol"


def test_accelerators_keep_their_outcomes() -> None:
    told = [
        {
            "name": "flash-attn",
            "status": "import failed",
            "version": "2.8.3",
            "reason": "ImportError: undefined symbol",
        },
        {"name": "liger-kernel", "status": "not installed", "version": None, "reason": None},
        {
            "name": "bitsandbytes",
            "status": "not tried",
            "version": "0.50",
            "reason": "it needs a GPU, and none is here",
        },
        {"name": "torch.compile", "status": "works", "version": None, "reason": None},
    ]
    found = environment._accelerators({"accelerators": told})
    assert (found["flash-attn"].works, found["flash-attn"].version) == (False, "2.8.3")
    assert "undefined symbol" in found["flash-attn"].why
    assert (found["liger-kernel"].works, found["liger-kernel"].version) == (None, None)
    assert (found["bitsandbytes"].works, found["bitsandbytes"].version) == (None, "0.50")
    assert found["torch.compile"].works


def test_variables_of_training_are_kept_and_secrets_are_not() -> None:
    given = {"NCCL_DEBUG": "INFO", "HF_HUB_TOKEN": "x", "WANDB_API_KEY": "x", "OMP_NUM_THREADS": "4", "HOME": "/root"}
    assert environment._variables(given) == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}
