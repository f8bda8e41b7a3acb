"""Promise: what is a secret in an audited file stands in nothing that the audit writes."""

import time
from pathlib import Path

import pytest

from dynotune.audit.command import FORMATS
from dynotune.audit.secret_values import Secrets
from dynotune.audit.show.terminal import screen
from tests.audit.made_up import audited

FILES = {
    "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\nhub_tokn: KEYSECRET01\nhub_token: KEYSECRET02\n"
    "push_to_hub_token: hf_KEYSECRET03aaaaaaaaaaaaaaaaaaa\noptim: adamw_torch\nwandb_api_key: KEYSECRET04\n"
    "dataset_name: https://user:KEYSECRET05@host/x.jsonl\nhub_token: KEYSECRET06\n",
    "run.sh": "export HF_TOKEN=KEYSECRET07\nexport NCCL_DEBUG=INFO\n"
    "trl sft --model_name_or_path m --hub_token KEYSECRET08 --optim adamw_torch --hub_tokn='KEYSECRET09' --dataset_name x\n",
    "train.py": 'import os\nfrom trl import SFTConfig\nos.environ["HF_TOKEN"] = "KEYSECRET10"\n'
    'args = SFTConfig("o", optim="adamw_torch", hub_tokn="KEYSECRET11", **{"api_key": "KEYSECRET12"})\n',
    "broken.yaml": "hub_token: KEYSECRET13: x\n  - [\n",
}


@pytest.mark.parametrize("name", FORMATS)
def test_no_output_holds_one(name: str, tmp_path: Path) -> None:
    result = audited(tmp_path, FILES)
    assert any(one.place.file == "sft.yaml" and one.code == "CFG001" for one in result.findings)
    assert "KEYSECRET" not in FORMATS[name](result)
    assert "KEYSECRET" not in str(screen(result, 200, everything=True))


def test_what_is_no_secret_stays() -> None:
    """Negative control."""
    secrets = Secrets({"a.py": "token = tokenizer\nkey: str = 'value'\napi_key = api_key\n", "b.yaml": "token: true\n"})
    for text in ("tokenizer", "max_tokens: 512", "pad_token: '<pad>'", "token: true", "num_key_value_heads: 8"):
        assert secrets.hide_source(text) == text
    assert secrets.hide_source("api_key: abcdefg") == "api_key: (hidden)"


def test_a_word_of_100_000_letters_takes_no_time() -> None:
    """Each start of a name was followed to the word's end once: 100 s here, in processor time."""
    started = time.process_time()
    assert Secrets({"a.py": "a" * 100_000 + "\napi_key = 'k3y-of-9'\n"}).hide("k3y-of-9") != "k3y-of-9"
    assert time.process_time() - started < 10
