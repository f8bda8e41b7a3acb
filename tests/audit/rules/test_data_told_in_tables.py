"""Promise: updates are counted by a table or a list with rows and their usual length, and by nothing else."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LF = (
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: lora\ndataset: a\ntemplate: qwen\n"
    "cutoff_len: 8192\npacking: true\nneat_packing: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 16\n"
    "num_train_epochs: 3\noutput_dir: o\n"
)
ROWS, EACH = "| rows | 4 200 pairs |\n", "| tokens per row | 165 on average, longest 710 |\n"


@pytest.mark.parametrize(
    ("readme", "found"),
    [
        (f"| | |\n|---|---|\n{ROWS}{EACH}", True),
        (f"| | |\n|---|---|\n{ROWS}{EACH}| hardware | 8 x A100 80GB |\n", True),
        ("- Training examples: 4,200\n- Mean length: 165 tokens\n", True),
        ("* dataset: ~4.2k conversations\n* average tokens per conversation: 165\n", True),
        (f"| | |\n|---|---|\n{ROWS}", False),
        (f"| | |\n|---|---|\n{ROWS}| longest row | 710 tokens |\n", False),
        (f"| | |\n|---|---|\n{ROWS}| max tokens per row | 165 |\n", False),
        (f"| | |\n|---|---|\n| eval rows | 200 |\n{EACH}", False),
        (f"| | |\n|---|---|\n| rows | 4 200 000 |\n{EACH}", False),
        (f"| | |\n|---|---|\n{ROWS}| training data | 9,000 chats |\n{EACH}", False),
        ("| rows | 4.2 GB |\n" + EACH, False),
        ("- Training examples: 4,200\n- Mean length: 165 characters\n", False),
    ],
)
def test_rows_and_their_length(tmp_path: Path, readme: str, found: bool) -> None:
    files = {"sft.yaml": LF, "README.md": f"# x\n\n{readme}", "run.sh": "llamafactory-cli train sft.yaml\n"}
    said = audited(tmp_path / "a", files, select=("PAD002",)).findings
    assert bool(said) is found


def test_gpus_that_the_texts_name_share_a_step(tmp_path: Path) -> None:
    readme = f"# x\n\n{ROWS}{EACH}"
    files = {
        "sft.yaml": LF,
        "README.md": readme,
        "run.sh": "# 8 x A100\nFORCE_TORCHRUN=1 llamafactory-cli train sft.yaml\n",
    }
    (said,) = audited(tmp_path / "a", files, select=("PAD002",)).findings
    assert "128 rows a step" in said.message
