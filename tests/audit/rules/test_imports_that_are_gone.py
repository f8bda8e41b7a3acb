"""Promise: an import that the pinned release no longer has is found, and none that is still there or is caught."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

INT8 = "from peft import LoraConfig, prepare_model_for_int8_training\n"


@pytest.mark.parametrize(
    ("train", "pins", "found"),
    [
        (INT8, "peft==0.13.2\n", 1),
        (INT8, "peft==0.9.0\n", 0),
        (INT8, "peft\n", 1),
        (INT8, "peft>=0.5\n", 1),
        (INT8, "peft>=0.5,<0.10\n", 0),
        (f"try:\n    {INT8}except ImportError:\n    pass\n", "peft==0.13.2\n", 0),
        (INT8[:-1] + "  # dynotune: ignore[ENV007] the image has another\n", "peft==0.13.2\n", 0),
        ("import datasets\nmetric = datasets.load_metric('accuracy')\n", "datasets==3.1.0\n", 1),
        ("import datasets as ds\nmetric = ds.load_metric('accuracy')\n", "datasets==2.21.0\n", 0),
        ("from transformers import AdamW, Trainer\n", "transformers==4.51.3\n", 1),
        ("from transformers import AdamW\n", "transformers==4.49.0\n", 0),
        ("from torch.optim import AdamW\n", "transformers==4.51.3\n", 0),
        ("from trl import DataCollatorForCompletionOnlyLM, SFTTrainer\n", "trl==0.21.0\n", 1),
        ("from trl import SFTTrainer\n", "trl==0.21.0\n", 0),
        ("from trl.trainer import ConstantLengthDataset\n", "trl==0.20.0\n", 1),
    ],
)
def test_a_name_that_is_gone(tmp_path: Path, train: str, pins: str, found: int) -> None:
    files = {"train.py": train, "requirements.txt": pins}
    assert len(audited(tmp_path, files, select=("ENV007",)).findings) == found
