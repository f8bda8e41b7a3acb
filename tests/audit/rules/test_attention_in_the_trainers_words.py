"""Promise: a remedy gives another attention in the words of the trainer that is asked: its fix is a file that it takes."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.fix.apply import proposed
from tests.audit.made_up import audited
from tests.audit.rules.facts import a_job, a_machine, findings

AXOLOTL = """base_model: Qwen/Qwen2.5-7B
datasets: [{{path: data.jsonl, type: alpaca}}]
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 4
num_epochs: 1
learning_rate: 0.0001
bf16: true
{}
output_dir: ./out
seed: 1
"""
FACTORY = """model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: alpaca_en_demo
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 4
bf16: true
{}
output_dir: out
"""
README = "Trained on one V100.\n"


@pytest.mark.parametrize(
    ("text", "code", "given", "told", "keys"),
    [
        (AXOLOTL, "ATT004", "eager_attention: true", "`sdp_attention: true` in the place of `eager_attention`",
         {"sdp_attention": True}),
        (AXOLOTL, "ATT004", "attn_implementation: eager", "`attn_implementation: sdpa`", {"attn_implementation": "sdpa"}),
        (AXOLOTL, "ATT005", "flash_attention: true", "`sdp_attention: true` in the place of `flash_attention`",
         {"sdp_attention": True}),
        (FACTORY, "ATT004", "flash_attn: disabled", "`flash_attn: sdpa`", {"flash_attn": "sdpa"}),
        (FACTORY, "ATT005", "flash_attn: fa2", "`flash_attn: sdpa`", {"flash_attn": "sdpa"}),
    ],
)  # fmt: skip
def test_the_fix_is_one_that_the_trainer_takes(
    tmp_path: Path, text: str, code: str, given: str, told: str, keys: dict[str, object]
) -> None:
    """Axolotl's switches are true or false: `eager_attention: sdpa` is refused by its schema, and was what a fix wrote."""
    readme = README if code == "ATT005" else ""
    files = {"train.yml": text.format(given), "README.md": readme}
    result = audited(tmp_path, files, select=(code,))
    [one] = result.findings
    assert given in one.message
    assert told in one.remedy.text
    [text] = proposed(result.project, result.findings).after.values()
    after = yaml.safe_load(text)
    before = yaml.safe_load(files["train.yml"])
    assert {key: value for key, value in after.items() if before.get(key) != value} == keys


def test_a_missing_package_is_told_in_the_trainers_words() -> None:
    job, machine = a_job(Trainer.AXOLOTL, attn_implementation="flash_attention_2"), a_machine()
    own = replace(job.settings["attn_implementation"], given_as="flash_attention", given_value=True)
    job = replace(job, settings={"attn_implementation": own})
    (found,) = findings("ATT002", machine, Project(".", [job], environment=machine))
    assert found.message.startswith("`flash_attention: true` is asked for")
    assert found.remedy.text.endswith("or set `sdp_attention: true` in the place of `flash_attention`.")
