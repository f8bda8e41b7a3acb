"""Promise: what peers ship as examples is not called wrong where it is right: shapes that were, beside what is wrong."""

from pathlib import Path

import pytest

from dynotune.audit.run import Request, audit
from tests.audit.made_up import audited

AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{{path: x, type: alpaca}}]\nmicro_batch_size: 2\nsequence_len: 2048\n{}"
)
ZERO = '{{"zero_optimization": {{"stage": 3, "{}": true}}, "train_micro_batch_size_per_gpu": "auto"}}\n'
PACKED = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n"
    "if {}:\n    attention = 'eager'\nelse:\n    attention = 'flash_attention_2'\n"
    "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', attn_implementation=attention)\n"
    "SFTTrainer(model, SFTConfig(output_dir='o', packing=True), train_dataset=rows).train()\n"
)


def codes(folder: Path, files: dict[str, str]) -> set[str]:
    return {one.code for one in audited(folder, files).findings}


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("stage3_gather_16bit_weights_on_model_save", False),
        ("gather_16bit_weights_on_model_save", False),
        ("cpu_offload_param", False),
        ("stage3_gather_16bit_weigths_on_model_save", True),
    ],
)
def test_a_key_of_deepspeed_may_have_its_fields_name(tmp_path: Path, key: str, wrong: bool) -> None:
    files = {"zero3.json": ZERO.format(key), "a.yml": AXOLOTL.format("deepspeed: zero3.json\n")}
    assert ("CFG017" in codes(tmp_path, files)) is wrong


@pytest.mark.parametrize(
    ("comment", "wrong"), [("- 1e-4 for 33b & 64b", False), ("1e-4 on long rows", False), ("1e-4", True)]
)
def test_a_rate_of_a_table_of_sizes_is_no_claim_of_this_file(tmp_path: Path, comment: str, wrong: bool) -> None:
    files = {"a.yml": AXOLOTL.format(f"learning_rate: 0.00002  # {comment}\n")}
    assert ("CFG011" in codes(tmp_path, files)) is wrong


@pytest.mark.parametrize(("keys", "wrong"), [("bf16: false\nfloat16: true\n", False), ("bf16: false\n", True)])
def test_axolotl_has_other_keys_for_sixteen_bits(tmp_path: Path, keys: str, wrong: bool) -> None:
    assert ("PRC006" in codes(tmp_path, {"a.yml": AXOLOTL.format(keys)})) is wrong


@pytest.mark.parametrize(("asked", "wrong"), [("axolotl>=0.16.1", False), ("torch transformers trl datasets", True)])
def test_a_trainer_brings_packages_that_a_readme_does_not_ask_for(tmp_path: Path, asked: str, wrong: bool) -> None:
    flash = "flash_attention: true\n"
    files = {"README.md": f"```bash\npip install {asked}\naxolotl train a.yml\n```\n", "a.yml": AXOLOTL.format(flash)}
    assert ("ATT005" in codes(tmp_path, files)) is wrong


@pytest.mark.parametrize(("condition", "wrong"), [("torch.xpu.is_available()", False), ("True", True)])
def test_a_branch_of_another_device_is_not_taken(tmp_path: Path, condition: str, wrong: bool) -> None:
    assert ("ATT001" in codes(tmp_path, {"t.py": PACKED.format(condition)})) is wrong


def test_a_launcher_named_by_itself_is_looked_at_though_its_script_was_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended in a traceback."""
    (tmp_path / "train.py").write_text("print('x')\n")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py --lr 1e-4\n")
    monkeypatch.chdir(tmp_path)
    assert not audit(Request(files=(Path("run.sh"),))).findings
