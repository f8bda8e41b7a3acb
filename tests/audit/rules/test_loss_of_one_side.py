"""Promise: a comment of a configuration, or a document in the project's words, is held against the turns that carry loss."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

AXOLOTL = """base_model: Qwen/Qwen2.5-7B-Instruct
{head}
datasets:
  - path: data/calls.jsonl
    type: chat_template
    roles_to_train: {roles}
    train_on_eos: turn
sequence_len: 4096
micro_batch_size: 1
output_dir: out
"""
BOTH, ONE = '["assistant", "user"]', '["assistant"]'


@pytest.mark.parametrize(
    ("head", "roles", "readme", "found"),
    [
        ("# transcripts, operator = assistant.\n# Loss on operator turns only.", BOTH, "", 1),
        ("# the loss is taken on the agent's messages only", BOTH, "", 1),
        ("# only assistant turns carry loss", BOTH, "", 1),
        ("# train on responses only", BOTH, "", 1),
        ("", BOTH, "Loss on the nurse's turns only.", 1),
        ("# Loss on operator turns only.", ONE, "", 0),
        ("# Loss on user turns only, for the simulator", BOTH, "", 0),
        ("# Loss on all turns.", BOTH, "", 0),
        ("# Loss on operator turns only does not work here", BOTH, "", 0),
        ("# set roles_to_train for loss on operator turns only", BOTH, "", 0),
        ("", BOTH, "Calls of operators.", 0),
        ("", BOTH, "The first version had the loss not on operator turns only.", 0),
    ],
)
def test_turns(tmp_path: Path, head: str, roles: str, readme: str, found: int) -> None:
    files = {"a.yml": AXOLOTL.format(head=head, roles=roles), "README.md": f"# x\n\n{readme}\n"}
    files["run.sh"] = "axolotl train a.yml\n"
    said = audited(tmp_path / "a", files, select=("MSK001",)).findings
    assert len(said) == found


LF = "### {}\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: lora\ndataset: a\ntemplate: qwen\n"


@pytest.mark.parametrize(
    ("said", "key", "found"),
    [
        ("loss on the answers only", "train_on_prompt: true\n", 1),
        ("loss on the answers only", "train_on_prompt: false\n", 0),
        ("loss on everything", "train_on_prompt: true\n", 0),
    ],
)
def test_a_comment_at_the_head(tmp_path: Path, said: str, key: str, found: int) -> None:
    files = {"a.yaml": LF.format(said) + key, "run.sh": "llamafactory-cli train a.yaml\n"}
    assert len(audited(tmp_path / "a", files, select=("MSK001",)).findings) == found
