"""Promise: a configuration of `trl dpo` runs as it stands with the same updates, and what differs is said.

Random runs, each trained for some steps by TRL's DPOTrainer and by ours, on the same rows in the same order; more of them by
`python -m tests.parity.fuzz_dpo.campaign --first 1000 --cases 500`.
"""

from pathlib import Path
from typing import Any

import pytest

from dynotune.config.fates.table import DPO_FATES
from tests.parity.fuzz.quiet import quiet
from tests.parity.fuzz_dpo.campaign import both, campaign
from tests.parity.fuzz_dpo.draw import KINDS, LOSSES, Case, draw
from tests.parity.fuzz_dpo.rows import FORMS
from tests.tiny import sentences

CASES, PARTS = 96, 8


@pytest.fixture(autouse=True)
def without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    monkeypatch.setattr(logging.root.manager, "disable", logging.NOTSET)  # `quiet` ends with the test
    quiet()


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_runs_train_alike(part: int) -> None:
    verdict = campaign(range(part, CASES, PARTS))
    assert not verdict.found, str(verdict)
    assert verdict.count["alike"] >= CASES // PARTS // 3, str(verdict)
    print(verdict)


def plain(**keys: Any) -> Case:
    texts = sentences(40, seed=3)
    rows = [
        {"prompt": f"{next(texts)}:", "chosen": f" {next(texts)}", "rejected": f" {next(texts)}"} for _ in range(12)
    ]
    settings = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "max_steps": 4,
        "loss_type": "sigmoid",
    }
    return Case(0, "llama", {}, "bos", "chat", "text", rows, keys={**settings, "learning_rate": 1e-3, **keys})


WRONG: list[dict[str, Any]] = [
    {"beta": 0.11},
    {"ld_alpha": 0.5},
    {"label_smoothing": 0.2},
    {"max_length": 16},
    {"weight_decay": 3.0},
    {"learning_rate": 1.1e-3},
    {"max_grad_norm": 0.01},
    {"lr_scheduler_type": "cosine"},
    {"columns": {"chosen": "rejected", "rejected": "chosen"}},
]


@pytest.mark.parametrize(
    "change", [pytest.param(one, marks=pytest.mark.long if i else ()) for i, one in enumerate(WRONG)], ids=str
)
def test_another_setting_on_one_side_is_found(change: dict[str, Any], tmp_path: Path) -> None:
    """The negative control: a case that both train alike, and one setting changed on our side alone."""
    case = plain(loss_type="robust", label_smoothing=0.1)
    for name in "ab":
        (tmp_path / name).mkdir()
    theirs, ours, found = both(case, tmp_path / "a")
    assert (theirs.steps, len(ours.rows), ours.refusal, found) == (4, 4, None, [])
    assert ours.pairs == theirs.pairs
    assert len(ours.pairs) == len(case.rows)
    assert both(case, tmp_path / "b", **change)[2]


def test_draws_reach_what_matters() -> None:
    """Every form, loss and architecture is drawn; each key is one that TRL has; a number is always the same case."""
    draws = [draw(number) for number in range(300)]
    keys = {key for case in draws for key in case.keys}
    assert keys <= DPO_FATES.keys()
    assert {case.form for case in draws} == set(FORMS)
    assert {case.kind for case in draws} == set(KINDS)
    named = [case.keys["loss_type"] for case in draws]
    assert {name for one in named for name in ([one] if isinstance(one, str) else one)} == set(LOSSES)
    deciding = "ld_alpha use_weighting f_alpha_divergence_coef discopop_tau loss_weights truncation_mode optim_args"
    assert keys > {*deciding.split(), "precompute_ref_log_probs", "disable_dropout", "eval_on_start", "warmup_steps"}
    assert any(case.trained_adapter for case in draws)
    assert str(draw(3)) == str(draw(3)) != str(draw(4))
