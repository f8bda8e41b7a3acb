"""Promise: a configuration of `trl sft` runs as it stands with the same updates, and what differs is said.

Random configurations, each trained for some steps by TRL's own script and by ours, from the same file; more of them by
`python -m tests.parity.fuzz.campaign --first 1000 --cases 500`.
"""

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynotune.config.fates.table import SFT_FATES
from tests.parity.fuzz.campaign import both, campaign
from tests.parity.fuzz.compare import differences
from tests.parity.fuzz.draw import Draw, draw
from tests.parity.fuzz.quiet import quiet
from tests.parity.fuzz.rows import FORMS, rows_of

CASES, PARTS = 80, 8


@pytest.fixture(autouse=True)
def without_a_word() -> Iterator[None]:
    """What other tests listen for is put back."""
    from transformers.utils import logging as transformers_logging

    verbosity, disabled = transformers_logging.get_verbosity(), logging.root.manager.disable
    quiet()
    yield
    transformers_logging.set_verbosity(verbosity)
    transformers_logging.enable_progress_bar()
    logging.disable(disabled)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_configurations_train_alike(part: int) -> None:
    place = os.environ.get("DYNOTUNE_SHARED")
    verdict = campaign(range(part, CASES, PARTS), Path(place).resolve() if place else None)
    assert not verdict.found, str(verdict)
    assert verdict.count["trained"] >= CASES // PARTS // 2, str(verdict)
    print(verdict)


WRONG: list[dict[str, Any]] = [
    {"learning_rate": 0.02},
    {"max_length": 7},
    {"weight_decay": 3.0},
    {"label_smoothing_factor": 0.3},
    {"gradient_accumulation_steps": 2},
    {"seed": 5, "shuffle_dataset": True},
    {"max_grad_norm": 0.01},
]


@pytest.mark.parametrize(
    "change", [pytest.param(one, marks=pytest.mark.long if i else ()) for i, one in enumerate(WRONG)]
)
def test_another_setting_on_one_side_is_found(change: dict[str, Any], tmp_path: Path) -> None:
    """The negative control: a case that both train alike, and one setting changed on our side alone."""
    settings = {
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 2,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
    }
    tokenizer = {"template": "plain", "bos": False, "pad": "<pad>", "side": "right"}
    rows = rows_of("messages", random.Random(0), 12)
    plain = Draw(0, "llama", {}, tokenizer, "messages", rows, [], settings, ours={"on_bad_row": "skip"})
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, theirs, ours = both(plain, tmp_path / "a")
    assert (theirs.steps, len(ours.rows), ours.error) == (4, 4, None)
    assert not differences(plain, theirs, ours)
    assert differences(*both(plain, tmp_path / "b", **change))


def test_draws_reach_what_matters() -> None:
    """Every form, and each key that decides on updates, is drawn; and each is a key that TRL has."""
    draws = [draw(number) for number in range(400)]
    keys = {key for d in draws for key in d.settings}
    assert keys <= SFT_FATES.keys()
    assert {d.form for d in draws} == set(FORMS)
    assert len({d.kind for d in draws}) > 30
    deciding = (
        "packing padding_free truncation_mode assistant_only_loss completion_only_loss loss_type optim_args use_dora"
    )
    assert keys > {
        *deciding.split(),
        "warmup_steps",
        "lora_modules_to_save",
        "load_best_model_at_end",
        "model_init_kwargs",
    }
    assert [draw(3), draw(4)] == [draw(3), draw(4)] != [draw(4), draw(3)]
