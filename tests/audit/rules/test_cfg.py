"""Promise: rules on configurations fire where a file and what runs differ, and stay silent on what is meant and usual."""

from pathlib import Path

import pytest

from dynotune.audit.finding import Finding, Severity, severity
from dynotune.audit.shapes.claims_of_comments import claimed_batch
from tests.audit.made_up import audited

TRL = "model_name_or_path: a/b\ndataset_name: d.jsonl\n"
AXOLOTL = "base_model: a/b\ndatasets:\n  - path: x/y\n    type: alpaca\nmicro_batch_size: 2\nsequence_len: 2048\n"
FACTORY = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\noutput_dir: out\n"
RUN = "trl sft --config sft.yaml\n"
PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"


def said(folder: Path, code: str, files: dict[str, str]) -> list[Finding]:
    return [finding for finding in audited(folder, files).findings if finding.code == code]


def test_axolotl_drops_and_trl_stops(tmp_path: Path) -> None:
    (dropped,) = said(tmp_path / "a", "CFG001", {"a.yml": AXOLOTL + "sample_packin: true\n"})
    assert "drops it without a word" in dropped.message
    assert "`sample_packing`" in dropped.message
    assert dropped.remedy.changes[0].to == "sample_packing"
    (stops,) = said(tmp_path / "b", "CFG001", {"sft.yaml": TRL + "zzz_quux: 1\n"})
    assert "stops at it" in stops.message
    assert not stops.remedy.changes


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": TRL + "num_processes: 8\nenv: {A: b}\nlr_scheduler_kwargs: {a: 1}\n"},
        {
            "a.yml": AXOLOTL
            + "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\nspecial_tokens: {pad_token: x}\n"
        },
        {"lf.yaml": FACTORY + "overwrite_output_dir: true\nwarmup_ratio: 0.1\nbf16: true\nddp_timeout: 180000000\n"},
        {
            "args.py": "from dataclasses import dataclass\n@dataclass\nclass Mine:\n"
            "    chat_template: str = ''\n    mix: dict = None\n",
            "sft.yaml": TRL + "chat_template: x\nmix: {a: 1}\n",
        },
        {
            "train.py": "import yaml\nc = yaml.safe_load(open('sft.yaml'))\n",
            "sft.yaml": TRL + "my_key: 1\nsample_packing: 2\n",
        },
        {
            "oi.yaml": "model_name_or_path: a\nuse_slow_tokenizer: true\nwith_tracking: true\n"
            "checkpointing_steps: epoch\nlr: 1\n"
        },
        {"train.py": "print(1)\n", "run.sh": "python train.py --whatever 3\n"},
        {
            "requirements.txt": "trl==0.11.4\ntransformers==4.45.2\n",
            "sft.yaml": TRL + "max_seq_length: 8\nevaluation_strategy: steps\n",
        },
    ],
)
def test_what_a_trainer_knows_is_not_called_unknown(tmp_path: Path, files: dict[str, str]) -> None:
    for code in ("CFG001", "CFG002"):
        assert not said(tmp_path / code, code, files)


FACTORY_PIN = {"requirements.txt": "llamafactory==0.9.3\n"}
AXOLOTL_PIN = {"requirements.txt": "axolotl==0.12.2\n"}


OLDER_PIN = {"requirements.txt": "axolotl==0.8.1\n"}
"""A release whose keys are not known, which may have had any."""


@pytest.mark.parametrize(
    ("pins", "configuration", "line", "instead"),
    [
        (FACTORY_PIN, FACTORY, "lora_droupout: 0.05\n", "lora_dropout"),
        (FACTORY_PIN, FACTORY, "gradient_acumulation_steps: 8\n", "gradient_accumulation_steps"),
        (AXOLOTL_PIN, AXOLOTL, "sample_packign: true\n", "sample_packing"),
        ({"requirements.txt": "trl==0.19.1\n"}, TRL, "learing_rate: 1.0e-5\n", "learning_rate"),
        (FACTORY_PIN, FACTORY, "max_seq_length: 2048\n", "cutoff_len"),
        ({}, FACTORY, "max_seq_length: 2048\n", "cutoff_len"),
        ({}, AXOLOTL, "context_parapllel_size: 2\n", "context_parallel_size"),
        (AXOLOTL_PIN, AXOLOTL, "per_device_train_batch_size: 4\n", "micro_batch_size"),
        (AXOLOTL_PIN, AXOLOTL, "num_train_epochs: 4\n", "num_epochs"),
        (AXOLOTL_PIN, AXOLOTL, "warmup_step: 50\n", "warmup_step"),  # near several, and in no release
        ({"requirements.txt": "trl==0.19.1\ntransformers==4.53.2\n"}, TRL, "use_flash_attn: true\n", "use_flash_attn"),
    ],
)
def test_slips_and_the_librarys_names_under_any_pin(
    tmp_path: Path, pins: dict[str, str], configuration: str, line: str, instead: str
) -> None:
    name = "lf.yaml" if configuration is FACTORY else "a.yml" if configuration is AXOLOTL else "sft.yaml"
    (found,) = said(tmp_path, "CFG001", {name: configuration + line, **pins})
    assert f"`{instead}`" in found.message


@pytest.mark.parametrize(
    ("pins", "configuration", "line"),
    [
        (FACTORY_PIN, FACTORY, "visual_inputs: true\n"),  # a key of an older release
        (FACTORY_PIN, FACTORY, "max_length: 512\nper_device_train_batch_size: 4\n"),  # LLaMA-Factory has them
        (OLDER_PIN, AXOLOTL, "rope_scaling_factors: 2\nreasoning_parts: 3\n"),
        (OLDER_PIN, AXOLOTL, "lr_scheduler: cosine\nlogging_steps: 5\nweight_decay: 0.0\ntorch_dtype: x\n"),
    ],
)
def test_keys_of_another_release_are_no_slips(
    tmp_path: Path, pins: dict[str, str], configuration: str, line: str
) -> None:
    name = "lf.yaml" if configuration is FACTORY else "a.yml"
    assert not said(tmp_path, "CFG001", {name: configuration + line, **pins})


@pytest.mark.parametrize(
    ("kind", "pin", "fires"),
    [
        ("sharegpt", "axolotl==0.9.2\n", True),
        ("sharegpt.load_role", "axolotl[flash-attn]==0.12.2\n", True),
        ("sharegpt", "", True),
        ("sharegpt", "axolotl==0.4.1\n", False),
        ("chat_template", "axolotl==0.9.2\n", False),
        ("{system_prompt: x}", "axolotl==0.9.2\n", False),
    ],
)
def test_a_format_that_axolotl_took_once(tmp_path: Path, kind: str, pin: str, fires: bool) -> None:
    files = {"a.yml": AXOLOTL.replace("type: alpaca", f"type: {kind}"), **({"requirements.txt": pin} if pin else {})}
    found = said(tmp_path / "a", "CFG002", files)
    assert [one.place.line for one in found] == [4] * fires
    held = files["a.yml"].replace("    type:", "    # dynotune: ignore[CFG002] our own fork has it\n    type:")
    assert not said(tmp_path / "held", "CFG002", {**files, "a.yml": held})


def test_a_renamed_key_is_renamed_unless_both_are_there(tmp_path: Path) -> None:
    (one,) = said(tmp_path / "a", "CFG002", {"sft.yaml": TRL + "max_seq_length: 8\n"})
    assert one.remedy.changes[0].to == "max_length"
    (both,) = said(tmp_path / "b", "CFG002", {"sft.yaml": TRL + "max_seq_length: 8\nmax_length: 9\n"})
    assert not both.remedy.changes


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("eval_steps: 10\n", True),
        ("eval_steps: 10\neval_strategy: steps\n", False),
        ("num_train_epochs: 3\nmax_steps: 10\n", True),
        ("num_train_epochs: 3\n", False),
        ("num_train_epochs: 3\nmax_steps: -1\n", False),
        ("packing_strategy: bfd\n", True),
        ("packing_strategy: bfd\neval_packing: true\neval_strategy: steps\n", False),
        ("gradient_checkpointing_kwargs: {use_reentrant: false}\n", False),
        ("gradient_checkpointing: false\ngradient_checkpointing_kwargs: {use_reentrant: false}\n", True),
        ("save_strategy: epoch\nsave_steps: 5\n", True),
    ],
)
def test_idle_keys(tmp_path: Path, line: str, fires: bool) -> None:
    found = said(tmp_path, "CFG005", {"sft.yaml": TRL + line})
    assert bool(found) is fires
    assert all(severity(one.stake) is Severity.NOTE for one in found)


def test_repeated_keys_of_files_that_are_none_of_training_are_not_ours(tmp_path: Path) -> None:
    assert not said(tmp_path / "a", "CFG006", {"ci.yaml": "on: push\njobs: 1\njobs: 2\n"})
    assert said(tmp_path / "b", "CFG006", {"ds.json": '{"zero_optimization": {"stage": 2, "stage": 3}}'})


def test_what_commands_set_for_one_run_is_no_contradiction(tmp_path: Path) -> None:
    files = {"sft.yaml": TRL + "learning_rate: 1.0e-5\nseed: 1\n"}
    assert not said(
        tmp_path / "a", "CFG007", files | {"run.sh": "trl sft --config sft.yaml --seed 2 --learning_rate 1e-5\n"}
    )
    assert not said(tmp_path / "b", "CFG007", files | {"run.sh": "trl sft --config sft.yaml --learning_rate $LR\n"})
    (found,) = said(tmp_path / "c", "CFG007", files | {"run.sh": "trl sft --config sft.yaml --learning_rate 2e-5\n"})
    assert (found.place.file, found.also[0].file) == ("sft.yaml", "run.sh")


@pytest.mark.parametrize(
    ("script", "flags", "fires"),
    [
        (PARSER + "p.parse_args()\n", "--lr 1", False),
        (PARSER + "p.parse_args()\n", "--rate 1", True),
        (PARSER + "p.parse_known_args()\n", "--rate 1", False),
        (PARSER + "import deepspeed\ndeepspeed.add_config_arguments(p)\np.parse_args()\n", "--rate 1", False),
        (PARSER + "add_more(parser=p)\nparser = p\nadd(parser)\np.parse_args()\n", "--rate 1", False),
        (
            "from trl import TrlParser, SFTConfig\nTrlParser((SFTConfig,)).parse_args_and_config()\n",
            "--max_length 1",
            False,
        ),
        (
            "from trl import TrlParser, SFTConfig\nTrlParser((SFTConfig,)).parse_args_and_config()\n",
            "--config c.yaml",
            False,
        ),
        (
            "from trl import TrlParser, SFTConfig\nTrlParser((SFTConfig,)).parse_args_and_config()\n",
            "--max_lenth 1",
            True,
        ),
        (
            "from x import Mine\nfrom trl import TrlParser\nTrlParser((Mine,)).parse_args_and_config()\n",
            "--any 1",
            False,
        ),
        ("from typer import Typer\n", "--any 1", False),
    ],
)
def test_flags_and_parsers(tmp_path: Path, script: str, flags: str, fires: bool) -> None:
    found = said(tmp_path, "CFG008", {"train.py": script, "run.sh": f"python train.py {flags}\n"})
    assert bool(found) is fires


def test_llama_factory_reads_no_dashes_after_a_file(tmp_path: Path) -> None:
    files = {"lf.yaml": FACTORY}
    assert said(tmp_path / "a", "CFG008", files | {"r.sh": "llamafactory-cli train lf.yaml --learning_rate 1e-5\n"})
    assert not said(tmp_path / "b", "CFG008", files | {"r.sh": "llamafactory-cli train lf.yaml learning_rate=1e-5\n"})


def test_the_rest_of_known_arguments_that_somebody_uses_is_not_lost(tmp_path: Path) -> None:
    used = PARSER + "args, rest = p.parse_known_args()\nmain(rest)\n"
    assert not said(tmp_path / "a", "CFG009", {"train.py": used, "run.sh": "python train.py --rate 1\n"})
    lost = PARSER + "args, rest = p.parse_known_args()\n"
    assert said(tmp_path / "b", "CFG009", {"train.py": lost, "run.sh": "python train.py --rate 1\n"})


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": TRL, "old.yaml": TRL},
        {"sft.yaml": TRL, "old.yaml": TRL, "run.sh": "trl sft --config $1\n"},
        {"sft.yaml": TRL, "old.yaml": TRL, "run.sh": RUN, "run2.py": "CONFIG = 'old.yaml'\n"},
        {"sft.yaml": TRL, "ci.yaml": "on: push\n", "run.sh": RUN},
    ],
)
def test_configurations_that_may_be_used_are_not_called_unused(tmp_path: Path, files: dict[str, str]) -> None:
    assert not said(tmp_path, "CFG010", files)


@pytest.mark.parametrize(
    ("comment", "claims"),
    [
        ("effective batch size 64", 64),
        ("Effective batch size: 4 x 8 = 32", 32),
        ("global batch = 2 * 4 * 8", 64),
        ("total train batch size is 128.", 128),
        ("effective batch size 64 per GPU", None),
        ("effective batch size of 500k tokens", None),
        ("effective batch of 16384 tokens", None),
        ("batch size 64", None),
        ("lower this to keep the effective batch size", None),
        ("keep effective batch size = bs * accumulation", None),
    ],
)
def test_what_a_comment_claims(comment: str, claims: int | None) -> None:
    assert claimed_batch(comment) == claims


BATCH = TRL + "per_device_train_batch_size: 4\ngradient_accumulation_steps: 4  # effective batch size {}\n"


@pytest.mark.parametrize(
    ("claimed", "command", "fires"),
    [
        (32, "", False),
        (24, "", True),
        (32, RUN + "", False),
        (16, "--num_processes 1", False),
        (64, "--num_processes 2", True),
    ],
)
def test_batches_and_their_comments(tmp_path: Path, claimed: int, command: str, fires: bool) -> None:
    files = {"sft.yaml": BATCH.format(claimed)}
    if command.startswith("--"):
        files["run.sh"] = f"{RUN.strip()} {command}\n"
    assert bool(said(tmp_path, "CFG011", files)) is fires


def test_a_comment_that_says_flash_attention(tmp_path: Path) -> None:
    line = TRL + "attn_implementation: sdpa  # {}\n"
    assert said(tmp_path / "a", "CFG011", {"sft.yaml": line.format("flash attention 2")})
    assert not said(tmp_path / "b", "CFG011", {"sft.yaml": line.format("no flash attention on this machine")})


def test_deepspeed_that_agrees(tmp_path: Path) -> None:
    stage = '{{"zero_optimization": {{"stage": 2}}, "gradient_clipping": {}, "bf16": {{"enabled": {}}}}}'
    config = {"sft.yaml": TRL + "deepspeed: ds.json\nmax_grad_norm: 1.0\nbf16: true\n"}
    assert not said(tmp_path / "a", "CFG012", config | {"ds.json": stage.format(1, "true")})
    assert not said(tmp_path / "b", "CFG012", config | {"ds.json": stage.format('"auto"', '"auto"')})
    assert len(said(tmp_path / "c", "CFG012", config | {"ds.json": stage.format(0.5, "false")})) == 2


def test_a_command_of_trl_s_module_joins_its_configuration(tmp_path: Path) -> None:
    files = {
        "Makefile": "PY ?= python\nCONFIG := sft.yaml\n\ntrain:\n"
        "\t$(PY) -m trl.cli sft --config $(CONFIG) --learning_rate 5e-5\n",
        "sft.yaml": TRL + "learning_rate: 2.0e-5\n",
    }
    (found,) = said(tmp_path, "CFG007", files)
    assert "`5e-05`" in found.message
    assert found.also[0].line == 5


def deepspeed(total: object, arguments: str = "", run: str = "") -> dict[str, str]:
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        f"args = TrainingArguments('out', deepspeed='ds.json', per_device_train_batch_size=8{arguments})\n"
        "Trainer(model, args).train()\n"
    )
    files = {"train.py": script, "ds.json": f'{{"zero_optimization": {{"stage": 2}}, "train_batch_size": {total}}}'}
    return files | ({"run.sh": run} if run else {})


def test_deepspeed_s_whole_batch_is_the_product(tmp_path: Path) -> None:
    eight = "torchrun --nproc_per_node 8 train.py\n"
    accumulated = ", gradient_accumulation_steps=4"
    (found,) = said(tmp_path / "a", "CFG012", deepspeed(64, accumulated, eight))
    assert "8 rows x 4 accumulated x 8 processes are 256" in found.message
    assert found.place.file == "ds.json"
    (found,) = said(tmp_path / "b", "CFG012", deepspeed(60))
    assert "no number makes it" in found.message
    for number, files in enumerate(
        (
            deepspeed(256, accumulated, eight),
            deepspeed('"auto"', accumulated, eight),
            deepspeed(64, accumulated),
            deepspeed(64, accumulated, "torchrun --nproc_per_node $GPUS train.py\n"),
        )
    ):
        assert not said(tmp_path / str(number), "CFG012", files)


INFO = '{"contracts": {"file_name": "a.json"}, "contracts_qa": {"file_name": "b.json"}}'


def test_a_data_set_that_is_not_defined(tmp_path: Path) -> None:
    files = {"lf.yaml": FACTORY + "dataset: contracts, contract_qa\n", "data/dataset_info.json": INFO}
    (found,) = said(tmp_path / "bad", "CFG014", files)
    assert "no data set `contract_qa`" in found.message
    assert found.remedy.changes[0].value == "contracts,contracts_qa"
    for number, (keys, place) in enumerate(
        (
            ("dataset: contracts,contracts_qa\n", "data"),
            ("dataset: [contracts]\neval_dataset: contracts_qa\n", "data"),
            ("dataset: other\ndataset_dir: elsewhere\n", "data"),
            ("dataset: other\ndataset_dir: ONLINE\n", "data"),
            ("dataset: other\n", "examples"),
        )
    ):
        files = {"lf.yaml": FACTORY + keys, f"{place}/dataset_info.json": INFO}
        assert not said(tmp_path / str(number), "CFG014", files)


@pytest.mark.parametrize(
    ("model", "template", "wrong"),
    [
        ("Qwen/Qwen2.5-14B-Instruct", "llama3", True),
        ("Qwen/Qwen3-8B", "gemma", True),
        ("meta-llama/Llama-3.1-8B-Instruct", "qwen", True),
        ("/models/Mistral-7B-Instruct-v0.3", "llama2", True),
        ("Qwen/Qwen2.5-14B-Instruct", "qwen", False),
        ("Qwen/Qwen3-8B", "qwen", False),
        ("Qwen/Qwen2.5-14B", "llama3", False),
        ("Qwen/Qwen2.5-14B-Instruct", "default", False),
        ("Qwen/Qwen2.5-14B-Instruct", "alpaca", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseekr1", False),
        ("allenai/Llama-3.1-Tulu-3-8B", "qwen", False),
        ("me/Llama-3-Chinese-8B-Instruct-ChatML", "qwen", False),
    ],
)
def test_the_template_of_another_family(tmp_path: Path, model: str, template: str, wrong: bool) -> None:
    keys = FACTORY.replace("a/b", model).replace("template: qwen", f"template: {template}")
    assert bool(said(tmp_path, "CFG015", {"lf.yaml": keys})) is wrong


def test_a_template_with_tokens_of_its_own_is_meant_so(tmp_path: Path) -> None:
    keys = AXOLOTL.replace("a/b", "Qwen/Qwen2.5-7B-Instruct") + "chat_template: llama3\n"
    assert said(tmp_path / "bad", "CFG015", {"a.yml": keys})
    assert not said(tmp_path / "good", "CFG015", {"a.yml": keys + "special_tokens: {eos_token: <|eot_id|>}\n"})


HYDRA = {
    "train.py": "import hydra\n\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
    "def main(cfg):\n    print(cfg.optim.lr, cfg.model.name, cfg.seed)\n",
    "conf/config.yaml": "defaults:\n  - model: qwen\n  - optim: adamw\n  - _self_\nseed: 1\nout: {a: 1}\n",
    "conf/model/qwen.yaml": "name: Qwen/Qwen3-4B\n",
    "conf/model/llama.yaml": "name: meta-llama/Llama-3.2-3B\nrope: {theta: 1}\n",
    "conf/optim/adamw.yaml": "lr: 1.0e-5\nbetas: [0.9, 0.95]\n",
}


@pytest.mark.parametrize("words", ["optim.learning_rate=$lr", "sed=3", "model.rope.theta=2", "env=1 out.b=2"])
def test_hydra_has_no_such_key(tmp_path: Path, words: str) -> None:
    found = said(tmp_path, "CFG008", HYDRA | {"run.sh": f"python train.py {words}\n"})
    assert len(found) == len(words.split())
    assert all(one.place.file == "run.sh" for one in found)


@pytest.mark.parametrize(
    "run",
    [
        "python train.py optim.lr=$lr out.a=2 seed=5",
        "python train.py +optim.eps=1 ++a.b=2 ~seed hydra.run.dir=x",
        "python train.py model=llama model.rope.theta=2",
        "python train.py model=$MODEL model.rope.theta=2",
        "python train.py -m model=qwen,llama model.rope.theta=2",
        "python train.py --config-name other learning_rate=2",
        "env WANDB=off python train.py seed=2",
        "python other.py optim.learning_rate=2",
        "python train.py optim.betas.0=0.8",
    ],
)
def test_hydra_has_it_or_it_cannot_be_told(tmp_path: Path, run: str) -> None:
    assert not said(tmp_path, "CFG008", HYDRA | {"run.sh": run + "\n", "other.py": "print(1)\n"})


@pytest.mark.parametrize(
    "change",
    [
        {"conf/config.yaml": "defaults:\n  - model: qwen\n  - optim@_here_: adamw\nseed: 1\n"},
        {"conf/config.yaml": "defaults:\n  - base_schema\n  - _self_\nseed: 1\n"},
        {
            "schema.py": "from hydra.core.config_store import ConfigStore\nConfigStore.instance().store(name='a', node=A)\n"
        },
        {"conf/model/qwen.yaml": "# @package ${other}\nname: a\n"},
    ],
)
def test_a_hydra_configuration_of_more_than_files_is_not_judged(tmp_path: Path, change: dict[str, str]) -> None:
    files = HYDRA | {"run.sh": "python train.py optim.learning_rate=1\n"}
    assert said(tmp_path / "plain", "CFG008", files)
    assert not said(tmp_path / "changed", "CFG008", files | change)


READS = (
    "import hydra\nfrom omegaconf import OmegaConf\n\ndef build(cfg):\n    return cfg.model.name.lower()\n\n"
    "@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
    "def main(cfg):\n    print(OmegaConf.to_yaml(cfg))\n    build(cfg)\n    {}\n"
)


@pytest.mark.parametrize(
    ("uses", "unread"),
    [
        ("print(cfg.optim.lr, cfg.seed, cfg.out.a)", ["optim.betas"]),
        ("print(cfg.optim.lr, cfg.optim.betas, cfg.seed, cfg.out.a)", []),
        ("print(cfg.optim.get('lr'), cfg.seed, cfg.out.a)", ["optim.betas"]),
        ("print(cfg.optim.get(name), cfg.seed, cfg.out.a)", []),
        ("make(**cfg.optim); print(cfg.seed, cfg.out.a)", []),
        ("other = cfg; print(cfg.optim.lr, cfg.seed, cfg.out.a)", ["optim.betas"]),
        ("other = cfg; print(cfg.optim.lr, cfg.seed, cfg.out.a, other.optim)", []),
        ("library.run(cfg); print(cfg.optim.lr, cfg.seed, cfg.out.a)", []),
        ("library.run(cfg)", []),
        ("print(cfg['optim'])", ["seed", "out.a"]),
        ("print(cfg[group])", []),
        ("o = cfg.optim; print(o.lr, cfg.seed, cfg.out.a)", ["optim.betas"]),
        ("o = cfg.optim; print(o.lr, o.betas, cfg.seed, cfg.out.a)", []),
        ("o = cfg.optim; use(o); print(o.lr, cfg.seed, cfg.out.a)", []),
        ("o = cfg.optim; o = more(o.lr); print(cfg.seed, cfg.out.a)", []),
        ("print(cfg.optim.lr, cfg.seed, cfg.out.a, getattr(cfg.optim, 'betas'))", []),
    ],
)
def test_keys_that_no_script_reads(tmp_path: Path, uses: str, unread: list[str]) -> None:
    found = said(tmp_path, "CFG017", HYDRA | {"train.py": READS.format(uses)})
    assert [one.evidence.facts["unread"] for one in found] == ([unread] if unread else [])


def test_a_key_that_another_refers_to_is_read(tmp_path: Path) -> None:
    files = HYDRA | {"train.py": READS.format("print(cfg.optim.lr, cfg.seed, cfg.out.a)")}
    files["conf/config.yaml"] += "x: ${optim.betas}\n"
    (found,) = said(tmp_path, "CFG017", files)
    assert found.evidence.facts["unread"] == ["x"]


STARTED = {
    "run.sh": "python train.py\n",
    "train.py": "from trl import SFTConfig, SFTTrainer\nSFTTrainer('a/b', args=SFTConfig('o'), train_dataset=d).train()\n",
    "old/sft.yaml": TRL,
}


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, 1),
        ({"README.md": "Start it with `trl sft --config old/sft.yaml`.\n"}, 0),
        ({"read.py": "import yaml\nprint(yaml.safe_load(open('x')))\n"}, 0),
        ({"read.py": "from trl import TrlParser\n"}, 0),
        ({"old/sft.yaml": AXOLOTL}, 0),
        ({"run.sh": "python train.py --file $1\n", "train.py": "print(1)\n"}, 0),
        ({"run.sh": "echo\n"}, 0),
    ],
)
def test_scripts_are_started_and_a_configuration_is_not(tmp_path: Path, more: dict[str, str], count: int) -> None:
    found = said(tmp_path, "CFG010", STARTED | more)
    assert [one.place.file for one in found] == ["old/sft.yaml"] * count


def test_open_instruct_s_older_files_are_not_trl_s(tmp_path: Path) -> None:
    keys = "model_name_or_path: a/b\nmax_seq_length: 2048\nwarmup_ratio: 0.03\noutput_dir: out\n"
    marks = "train_file: a.jsonl\nuse_flash_attn: true\nuse_lora: true\nlora_rank: 64\nwith_tracking: true\n"
    for code in ("CFG001", "CFG002"):
        assert not said(tmp_path / "its", code, {"c.yaml": keys + marks})
    assert said(tmp_path / "trl", "CFG002", {"c.yaml": keys + "dataset_name: d\nuse_peft: true\n"})
