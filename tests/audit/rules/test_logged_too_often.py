"""Promise: a log of every step is told where steps are short, or DeepSpeed's own, and no other, however many there are."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = (
    "model_name_or_path: {}\ndataset_name: {}\nnum_train_epochs: 2\nper_device_train_batch_size: {}\nmax_length: 1024\n"
    "use_peft: true\nlogging_steps: {}\nreport_to: {}\noutput_dir: o\n"
)


@pytest.mark.parametrize(
    ("model", "data", "batch", "every", "reports", "found"),
    [
        ("acme/own-20b", "acme/recipes_60k", "8", "1", "none", False),
        ("acme/own-20b", "acme/recipes_6k", "8", "1", "none", False),
        ("acme/own-20b", "acme/recipes", "8", "1", "none", False),
        ("THUDM/glm-4-9b-chat-hf", "acme/recipes", "2", "1", "wandb", True),
        ("THUDM/glm-4-9b-chat-hf", "acme/recipes", "16", "1", "wandb", False),
        ("THUDM/glm-4-32b-chat-hf", "acme/recipes", "2", "1", "wandb", False),
    ],
)
def test_short_steps_and_long_ones(
    tmp_path: Path, model: str, data: str, batch: str, every: str, reports: str, found: bool
) -> None:
    files = {"sft.yaml": SFT.format(model, data, batch, every, reports), "run.sh": "trl sft --config sft.yaml\n"}
    assert bool(audited(tmp_path, files, select=("HST052",)).findings) is found


LOOP = """import deepspeed
from settings import DS
engine, _, loader, _ = deepspeed.initialize(model=model, training_data=rows, config={})
for batch in loader:
    engine.backward(engine(**batch).loss)
    engine.step()
"""


@pytest.mark.parametrize(
    ("prints", "times", "found"), [("1", "False", True), ("100", "True", True), ("100", "False", False)]
)
def test_deepspeeds_own_log(tmp_path: Path, prints: str, times: str, found: bool) -> None:
    held = f"DS = dict(train_micro_batch_size_per_gpu=8, steps_per_print={prints}, wall_clock_breakdown={times})\n"
    files = {"train.py": LOOP.format("DS"), "settings.py": held, "run.sh": "deepspeed --num_gpus 4 train.py\n"}
    said = audited(tmp_path / "a", files, select=("HST052",)).findings
    assert [one.place.file for one in said] == ["settings.py"] * found
    text = (
        f'{{"train_micro_batch_size_per_gpu": 8, "steps_per_print": {prints}, "wall_clock_breakdown": {times.lower()}}}'
    )
    files = {
        "train.py": LOOP.format("'ds.json'"),
        "ds.json": text,
        "run.sh": "deepspeed train.py --deepspeed_config ds.json\n",
    }
    said = audited(tmp_path / "b", files, select=("HST052",)).findings
    assert [one.place.file for one in said] == ["ds.json"] * found
