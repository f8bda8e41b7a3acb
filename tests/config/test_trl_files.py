"""A TRL configuration runs as it stands: files and command lines in the style of TRL's documentation load unchanged."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynotune.config.load import load_config
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError

FILES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "example of the command-line guide": (
        """
        env:
          DT_TRL_FILE: 0
        model_name_or_path:
          Qwen/Qwen2.5-0.5B
        dataset_name:
          stanfordnlp/imdb
        report_to:
          none
        learning_rate:
          0.0001
        lr_scheduler_type:
          cosine
        """,
        {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "report_to": "none", "env": {"DT_TRL_FILE": "0"}},
        [],
    ),
    "full fine-tuning": (
        """
        # Model arguments
        model_name_or_path: Qwen/Qwen2.5-1.5B
        model_revision: main
        dtype: bfloat16
        attn_implementation: sdpa

        # Data arguments
        dataset_name: trl-lib/Capybara
        dataset_num_proc: 12

        # Trainer arguments
        bf16: true
        do_eval: false
        eval_strategy: 'no'
        gradient_accumulation_steps: 8
        gradient_checkpointing: true
        gradient_checkpointing_kwargs:
          use_reentrant: false
        learning_rate: 2.0e-05
        log_level: info
        logging_steps: 5
        logging_strategy: steps
        lr_scheduler_type: cosine_with_min_lr
        lr_scheduler_kwargs:
          min_lr_rate: 0.1
        max_length: 4096
        max_steps: -1
        num_train_epochs: 1
        output_dir: data/Qwen2.5-1.5B-SFT
        overwrite_output_dir: true
        per_device_eval_batch_size: 16
        per_device_train_batch_size: 2
        push_to_hub: false
        report_to:
        - wandb
        save_strategy: "epoch"
        save_total_limit: 1
        seed: 42
        use_liger_kernel: false
        warmup_ratio: 0.03
        """,
        {
            "dtype": "bfloat16",
            "warmup_steps": 0.03,
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
            "report_to": ["wandb"],
            "max_length": 4096,
            "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
        },
        ["log_level", "per_device_eval_batch_size", "warmup_ratio"],
    ),
    "LoRA": (
        """
        model_name_or_path: Qwen/Qwen2-0.5B
        dataset_name: trl-lib/Capybara
        learning_rate: 2.0e-4
        num_train_epochs: 1
        per_device_train_batch_size: 2
        gradient_accumulation_steps: 8
        eos_token: '<|im_end|>'
        eval_strategy: steps
        eval_steps: 100
        use_peft: true
        lora_r: 32
        lora_alpha: 16
        lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
        lora_dropout: 0.0
        output_dir: Qwen2-0.5B-SFT
        push_to_hub: true
        """,
        {"lora_r": 32, "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "eos_token": "<|im_end|>"},
        [],
    ),
    "mixture with a launcher": (
        """
        model_name_or_path: Qwen/Qwen2.5-0.5B
        num_processes: 1
        accelerate_config: single_gpu
        mixed_precision: bf16
        main_process_port: 29501
        datasets:
          - path: stanfordnlp/imdb
            split: train
            columns: [text]
            fraction: 0.7
          - path: roneneldan/TinyStories
            name: default
            data_files: {train: data/*.parquet}
            columns: [text]
            fraction: 0.3
        streaming: false
        test_split_size: 0.05
        eval_strategy: epoch
        model_init_kwargs: '{"attn_implementation": "sdpa"}'
        """,
        {"test_split_size": 0.05, "attn_implementation": "sdpa", "model_init_kwargs": {}},
        ["main_process_port", "mixed_precision"],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_loads_unchanged(name: str, tmp_path: Path) -> None:
    """No key is touched; what is not needed is said, and nothing else is."""
    text, values, said = FILES[name]
    path = tmp_path / "sft.yaml"
    path.write_text(text)
    config = load_config(path, {})
    for key, value in values.items():
        assert getattr(config, key) == value
    assert len(config.notices) == len(said), config.notices
    for key, notice in zip(said, sorted(config.notices), strict=True):
        assert key in notice


@pytest.mark.parametrize("name", [name for name in FILES if "mixture" not in name])
def test_trl_reads_the_same_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer's own parser gives the same values for every honoured key (older names aside, which it drops)."""
    trl = pytest.importorskip("trl")
    from dynotune.config.fates.legacy import RENAMED

    monkeypatch.setenv("DT_TRL_FILE", "")
    text = FILES[name][0]
    given = {key: value for key, value in yaml.safe_load(text).items() if key not in RENAMED}
    given.pop("overwrite_output_dir", None)
    given.update(use_cpu=True, report_to="none")
    path = tmp_path / "sft.yaml"
    path.write_text(yaml.safe_dump(given))
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    theirs = {
        key: value
        for part in parser.parse_args_and_config(["--config", str(path)])
        for key, value in vars(part).items()
    }
    ours = load_config(path, {})
    compared = 0
    for key in given:
        if key in SFTConfig.model_fields and key not in {"env", "report_to"}:
            compared += 1
            assert getattr(ours, key) == getattr(theirs[key], "value", theirs[key]), key
    assert compared >= 4


def test_packing_is_honoured_with_trls_names() -> None:
    """TRL's own example packs; a strategy's old name is said."""
    config = load_config(None, {"packing": True, "dataset_name": "trl-lib/Capybara"})
    assert (config.packing, config.packing_strategy, config.packing_of_evaluation) == (True, "bfd", True)
    old = load_config(None, {"packing": True, "packing_strategy": "bfd-requeue", "eval_packing": False})
    assert (old.packing_strategy, old.packing_of_evaluation) == ("bfd_split", False)
    assert "old name of `bfd_split`" in old.notices[0]
    with pytest.raises(ConfigError, match="packing_strategy"):
        load_config(None, {"packing": True, "packing_strategy": "ffd"})


def test_accelerate_file(tmp_path: Path) -> None:
    """A launcher file is read: its number of processes is honoured, sharding and several machines are refused."""
    for kind, machines, gpus in (("NO", 1, 1), ("MULTI_GPU", 1, 6), ("FSDP", 1, None), ("MULTI_GPU", 2, None)):
        path = tmp_path / f"{kind}.yaml"
        path.write_text(f"distributed_type: '{kind}'\nnum_machines: {machines}\nnum_processes: 6\n")
        if gpus:
            config = load_config(None, {"accelerate_config": str(path)})
            assert (config.gpus, config.notices) == (gpus, [])
        else:
            with pytest.raises(ConfigError, match="accelerate_config"):
                load_config(None, {"accelerate_config": str(path)})


def test_the_number_of_processes_by_any_launchers_name() -> None:
    for given in ({"num_processes": 4}, {"nproc_per_node": "4"}, {"gpus": 4}, {"multi_gpu": True, "num_processes": 4}):
        assert load_config(None, given).gpus == 4
    assert load_config(None, {"config_file": "multi_gpu"}).gpus == 8  # what TRL ships
    assert load_config(None, {"accelerate_config": "multi_gpu", "num_processes": 4}).gpus == 4  # accelerate's order
    assert load_config(None, {"num_processes": 0}).gpus is None
    for given in (
        {"num_processes": 4, "gpus": 2},
        {"nproc_per_node": "gpu"},
        {"nnodes": 2},
        {"accelerate_config": "zero3"},
    ):
        with pytest.raises(ConfigError):
            load_config(None, given)
