"""The card says what the run folder says, and nothing of the machine or its secrets."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from dynotune.report.model_card import public_name, write_model_card

CONFIG: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-0.5B",
    "dataset_name": "/home/someone/private/chats.jsonl",
    "output_dir": "/home/someone/runs/my-run",
    "hub_token": "hf_verysecret",
    "env": {"WANDB_API_KEY": "alsosecret", "GH": "alsosecret"},
    "model_init_kwargs": {
        "token": "hf_verysecret",
        "low_cpu_mem_usage": True,
        "proxies": {"https": "http://me:secret@proxy"},
        "storage_options": {"api_key": "secret"},
    },
    "learning_rate": 0.0001,
    "max_length": 1024,
    "use_peft": True,
    "report_to": ["wandb"],
}
LEDGER = {
    "rows_read": 12,
    "rows_used": 10,
    "tokens_used": 3456,
    "label_tokens": 1234,
    "tokens_truncated": 7,
    "skipped": {"invalid-utf8": 2},
    "notices": {"crlf": 3},
    "sources": {
        "/home/someone/private/chats.jsonl": {
            "rows_read": 12,
            "rows_used": 10,
            "tokens_used": 3456,
            "label_tokens": 1234,
            "tokens_truncated": 7,
        }
    },
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "my-run"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "README.md").write_text("---\nlibrary_name: peft\n---\nfill me in")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (folder / "ledger.json").write_text(json.dumps(LEDGER))
    environment = {
        "python": "3.12.1",
        "packages": {"torch": "2.11.0+cu130"},
        "gpus": [{"name": "H200"}, {"name": "H200"}],
    }
    (folder / "environment.json").write_text(json.dumps(environment))
    rows = [{"step": 10, "loss": 2.5}, {"step": 20, "loss": 1.25}, {"step": 20, "eval_loss": 1.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_card_states_base_data_settings_figures_and_versions(run: Path) -> None:
    write_model_card(run, {"steps": 20, "real_tokens": 3456, "tokens_per_second": 123.4, "skipped_steps": []})
    text = (run / "adapter" / "README.md").read_text()
    assert text == (run / "README.md").read_text()
    card = ModelCard(text)
    assert card.data.base_model == "Qwen/Qwen2.5-0.5B"
    assert card.data.library_name == "peft"
    assert card.data.datasets is None  # a local file is no hub data set
    assert set(card.data.tags) == {"dynotune", "sft", "lora"}
    for part in (
        "| chats.jsonl | 12 | 10 | 3,456 | 1,234 | 7 |",
        "invalid-utf8 2",
        "crlf 3",
        "| steps | 20 |",
        "| real tokens | 3,456 |",
        "| training loss, last logged (step 20) | 1.2500 |",
        "| eval loss, last logged (step 20) | 1.5000 |",
        "Python 3.12.1, torch 2.11.0+cu130; GPUs of the machine: 2 x H200.",
        "AutoPeftModelForCausalLM",
        "fill me in",
    ):
        assert (part in text) is (part != "fill me in"), part
    settings = yaml.safe_load(text.split("```yaml")[1].split("```")[0])
    assert settings == {
        "dataset_name": "chats.jsonl",
        "learning_rate": 0.0001,
        "model_init_kwargs": {
            "low_cpu_mem_usage": True,
            "proxies": {"https": "http://(hidden)@proxy"},
            "storage_options": {},
        },
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "use_peft": True,
    }


def test_figures_of_the_machine_are_left_to_the_run(run: Path) -> None:
    write_model_card(
        run,
        {
            "steps": 20,
            "definitions": 1,
            "time/host": 0.1,
            "set_up/fused_lora": 1.5,
            "meter_steps": 0,
            "steady_fill": 0.9,
        },
    )
    results = (run / "README.md").read_text().partition("## Results")[2].partition("##")[0]
    assert "| steps | 20 |" in results
    for name in ("definitions", "time/", "set up", "set_up", "meter", "steady"):
        assert name not in results


def test_no_secret_and_no_local_path_stands_in_it(run: Path) -> None:
    write_model_card(run, {})
    text = (run / "README.md").read_text()
    for private in ("secret", "someone", "/home", "wandb"):
        assert private not in text
    assert "chats.jsonl" in text  # the check above would also pass on an empty card


def test_a_run_without_metrics_or_ledger_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    (folder / "model").mkdir(parents=True)
    write_model_card(folder, {})
    text = (folder / "model" / "README.md").read_text()
    assert "The run left no ledger." in text
    assert "The run logged no metrics." in text
    assert ModelCard(text).data.base_model is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("org/model", "org/model"),
        ("gpt2", "gpt2"),
        ("/home/me/models/llama", "llama"),
        ("./models/llama/", "llama"),
        ("data/train.jsonl", "train.jsonl"),
        ("data/shards/*.parquet", "*.parquet"),
        ("~/x/y", "y"),
        ("C:\\models\\llama", "llama"),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B"),
        ("https://me:secret@host/x.jsonl?token=secret", "x.jsonl?token=(hidden)"),
    ],
)
def test_public_names(name: str, shown: str) -> None:
    assert public_name(name) == shown


def test_a_folder_here_is_not_taken_for_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    assert public_name("models/llama") == "models/llama"
    monkeypatch.chdir(tmp_path)
    assert public_name("models/llama") == "llama"
