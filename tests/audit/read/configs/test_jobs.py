"""Promise: whose configuration it is shows in its keys, and its job is in TRL's words with the trainer's own kept."""

from pathlib import Path

import pytest

from dynotune.audit.facts.job import Fate, Job, Method, Trainer
from dynotune.audit.facts.setting import Known
from dynotune.audit.read.configs import job_of, read_config
from dynotune.audit.schema import Schemas

TRL = "model_name_or_path: a/b\ndataset_name: d.jsonl\n"
AXOLOTL = "base_model: a/b\ndatasets:\n  - path: x/y\n    type: alpaca\nmicro_batch_size: 2\nsequence_len: 2048\n"
FACTORY = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\noutput_dir: out\n"


def kind(text: str, name: str = "run.yaml") -> str:
    config = read_config(Path(name), text, Path())
    assert config is not None
    return config.kind


def job(text: str, name: str = "run.yaml") -> Job:
    config = read_config(Path(name), text, Path())
    assert config is not None
    found = job_of(config, Schemas.of())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRL, "trl sft"),
        (TRL + "beta: 0.1\n", "trl dpo"),
        (TRL + "loss_type: [sigmoid, sft]\n", "trl dpo"),
        (TRL + "num_generations: 8\n", "trl other"),
        (TRL + "packed_execution: on\n", "dynotune sft"),
        (TRL + "on_bad_row: skip\n", "dynotune sft"),
        (AXOLOTL, "axolotl"),
        (FACTORY, "llama-factory"),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n", "accelerate"),
        ("zero_optimization:\n  stage: 2\nbf16:\n  enabled: auto\n", "deepspeed"),
        ("defaults:\n  - model: llama\nlr: 1\n", "hydra"),
        ("args:\n  _target_: transformers.TrainingArguments\n  output_dir: x\n", "hydra"),
        ("output_dir: x\nper_device_train_batch_size: 4\nlearning_rate: 1e-5\n", "transformers"),
        ("dataset_mixer_list: [a, 1.0]\nlearning_rate: 1e-5\nmodel_name_or_path: x\n", "open-instruct"),
        ("one:\n  file_name: a.json\ntwo:\n  hf_hub_url: a/b\n", "llama-factory data"),
        ("name: CI\non: push\njobs: {build: {runs-on: x}}\n", "unknown"),
        ("repos:\n  - repo: x\n    rev: v1\n", "unknown"),
        ("services:\n  train:\n    image: x\n", "unknown"),
        ("architectures: [Qwen2ForCausalLM]\nhidden_size: 8\nmodel_type: qwen2\nvocab_size: 9\n", "unknown"),
    ],
)
def test_whose_it_is(text: str, expected: str) -> None:
    assert kind(text) == expected


def test_a_files_name_decides_between_methods_that_its_keys_leave_open() -> None:
    assert kind(TRL, "recipes/dpo_qwen.yaml") == "trl dpo"
    assert kind(TRL + "packing: true\n", "recipes/dpo_qwen.yaml") == "trl sft"


def test_trl_has_its_defaults_and_what_its_code_makes_of_them() -> None:
    found = job(TRL + "learning_rate: 1e-5\n")
    assert (found.trainer, found.method) == (Trainer.TRL, Method.SFT)
    assert found.get("bf16") is True
    assert found.get("gradient_checkpointing") is True
    assert found.get("max_length") == 1024
    assert not found.is_given("max_length")
    assert found.get("learning_rate") == 1e-5
    assert found.place("learning_rate").line == 3
    assert job(TRL + "fp16: true\n").get("bf16") is False


def test_axolotl_in_trls_words() -> None:
    found = job(
        AXOLOTL + "sample_packing: true\nflash_attention: true\nadapter: qlora\nbf16: auto\noptimizer: adamw_torch\n"
    )
    assert (found.trainer, found.method) == (Trainer.AXOLOTL, Method.SFT)
    expected = {
        "model_name_or_path": "a/b",
        "per_device_train_batch_size": 2,
        "max_length": 2048,
        "packing": True,
        "attn_implementation": "flash_attention_2",
        "use_peft": True,
        "load_in_4bit": True,
        "bf16": True,
        "optim": "adamw_torch",
        "dataset_name": "x/y",
        "gradient_checkpointing": False,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found.called("packing") == "sample_packing"
    assert found.settings["bf16"].given_value == "auto"
    assert found.set("optim", "adamw_torch_fused").name == "optimizer"
    assert job(AXOLOTL + "rl: dpo\nrl_beta: 0.2\n").method is Method.DPO
    assert job(AXOLOTL + "flash_attention: false\n").get("attn_implementation") is None


def test_llama_factory_in_trls_words() -> None:
    found = job(FACTORY + "cutoff_len: 4096\nlora_rank: 16\nlora_target: all\nflash_attn: fa2\nquantization_bit: 4\n")
    expected = {
        "max_length": 4096,
        "lora_r": 16,
        "lora_target_modules": "all-linear",
        "attn_implementation": "flash_attention_2",
        "load_in_4bit": True,
        "load_in_8bit": False,
        "use_peft": True,
        "gradient_checkpointing": True,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found.settings["gradient_checkpointing"].known is Known.DEFAULT
    assert job(FACTORY + "disable_gradient_checkpointing: true\n").get("gradient_checkpointing") is False
    assert job(FACTORY.replace("stage: sft", "stage: dpo") + "pref_beta: 0.3\n").get("beta") == 0.3


@pytest.mark.parametrize(
    ("line", "fate", "instead"),
    [
        ("packing: true", Fate.KNOWN, ""),
        ("max_seq_length: 8", Fate.RENAMED, "max_length"),
        ("evaluation_strategy: steps", Fate.RENAMED, "eval_strategy"),
        ("overwrite_output_dir: true", Fate.REMOVED, ""),
        ("sample_packing: true", Fate.ANOTHERS, "packing"),
        ("cutoff_len: 12", Fate.ANOTHERS, "max_length"),
        ("lerning_rate: 1", Fate.UNKNOWN, "learning_rate"),
        ("num_processes: 2", Fate.KNOWN, ""),
        ("env: {A: b}", Fate.KNOWN, ""),
    ],
)
def test_fates_of_keys_under_trl(line: str, fate: Fate, instead: str) -> None:
    key = job(TRL + line + "\n").given[-1]
    assert (key.fate, key.instead) == (fate, instead)
    assert key.place.line == 3


def test_what_axolotl_knows_is_known() -> None:
    found = job(AXOLOTL + "lora_mlp_kernel: true\nliger_rope: true\nplugins: [a]\nsample_packin: true\nlora_rank: 4\n")
    fates = {key.name: key.fate for key in found.given}
    assert fates.pop("sample_packin") is Fate.UNKNOWN
    assert fates.pop("lora_rank") is Fate.ANOTHERS
    assert set(fates.values()) == {Fate.KNOWN}


def test_hydra_is_resolved_where_the_file_has_the_answer() -> None:
    text = "lr: 1e-4\nargs:\n  _target_: trl.SFTConfig\n  learning_rate: ${lr}\n  output_dir: ${oc.env:OUT}/x\n"
    text += "  seed: ${a.b}\n"
    found = job(text)
    assert found.get("learning_rate") == 1e-4
    assert found.place("learning_rate").line == 4
    assert not found.settings["output_dir"].is_known
    assert not found.settings["seed"].is_known
    assert not job("args:\n  _target_: trl.SFTConfig\n  seed: ${args.seed}\n").settings["seed"].is_known
