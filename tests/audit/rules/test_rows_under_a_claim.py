"""Promise: a project that says loss on answers, and hands TRL conversations without the key, is told so; others are not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\noutput_dir: out\nmax_length: 512\n"
CHAT = '{"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]}\n'
PAIR = '{"prompt": "a?", "completion": "b"}\n'
TEXT = '{"text": "a? b"}\n'
SAYS = "# x\n\nOnly the assistant's turns are learned, the archivist's words are context.\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"sft.yaml": f"{SFT}dataset_name: d.jsonl\n", "d.jsonl": CHAT, "README.md": SAYS}, "`messages`"),
        ({"sft.yaml": f"{SFT}dataset_name: rows/a\n", "rows/a/train.jsonl": CHAT, "README.md": SAYS}, "`messages`"),
        (
            {
                "sft.yaml": f"{SFT}dataset_name: rows\n",
                "rows/train.jsonl": CHAT,
                "rows/test.jsonl": CHAT,
                "README.md": SAYS,
            },
            "`messages`",
        ),
        ({"sft.yaml": f"{SFT}dataset_name: d.jsonl\n", "d.jsonl": TEXT, "README.md": SAYS}, "whole texts"),
        ({"sft.yaml": f"{SFT}# loss on the answers only\ndataset_name: d.jsonl\n", "d.jsonl": CHAT}, "`messages`"),
    ],
)
def test_a_claim_without_the_key_is_said(tmp_path: Path, files: dict[str, str], says: str) -> None:
    (finding,) = audited(tmp_path, files, select=("MSK001",)).findings
    assert says in finding.message
    assert finding.place.file == "sft.yaml"


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": f"{SFT}dataset_name: d.jsonl\nassistant_only_loss: true\n", "d.jsonl": CHAT, "README.md": SAYS},
        {"sft.yaml": f"{SFT}dataset_name: d.jsonl\n", "d.jsonl": PAIR, "README.md": SAYS},
        {"sft.yaml": f"{SFT}dataset_name: d.jsonl\n", "d.jsonl": CHAT, "README.md": "Trains on whole conversations.\n"},
        {"sft.yaml": f"{SFT}dataset_name: a/hub\n", "README.md": SAYS},
        {
            "sft.yaml": f"{SFT}dataset_name: d.jsonl\n",
            "d.jsonl": CHAT,
            "README.md": "TRL can mask the prompt with `assistant_only_loss`; we do not.\n",
        },
        {"sft.yaml": f"{SFT}dataset_name: rows\n", "rows/a.jsonl": CHAT, "rows/b.jsonl": CHAT, "README.md": SAYS},
        {
            "sft.yaml": f"{SFT}dataset_name: d.jsonl\n",
            "answers.yaml": f"{SFT}dataset_name: d.jsonl\nassistant_only_loss: true\n",
            "d.jsonl": CHAT,
            "README.md": SAYS,  # of the other
        },
    ],
)
def test_one_that_is_kept_or_not_known_is_not(tmp_path: Path, files: dict[str, str]) -> None:
    assert not audited(tmp_path, files, select=("MSK001",)).findings


@pytest.mark.parametrize(("more", "found"), [("", True), (" --assistant_only_loss true", False)])
def test_a_launcher_that_has_it_all_in_flags(tmp_path: Path, more: str, found: bool) -> None:
    command = f"trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name d.jsonl --output_dir out{more}\n"
    files = {"run.sh": f"#!/bin/bash\n# loss on the assistant replies only\n{command}", "d.jsonl": CHAT}
    assert bool(audited(tmp_path, files, select=("MSK001",)).findings) is found
