"""Promise: what `--write_config` writes loads and asks for what the job asked for; what is not in it is listed."""

from pathlib import Path

import pytest

from dynotune import DPOConfig, load_config
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.setting import Known, Setting, Unknown
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.plan.carry_over import carry_over
from dynotune.cli import run
from dynotune.errors import ConfigError
from tests.audit.made_up import write


def job(method: Method | None = Method.SFT, trainer: Trainer = Trainer.TRL, **values: object) -> Job:
    settings = {name: Setting(name, value, Place("train.py", 3, key=name)) for name, value in values.items()}
    return Job(trainer, method, settings, home=Place("train.py", 1), files=("train.py",))


def test_what_is_written_loads_and_says_the_same(tmp_path: Path) -> None:
    given = {
        "model_name_or_path": "Qwen/Qwen2.5-0.5B",
        "dataset_name": "a b.jsonl",
        "learning_rate": 1e-5,
        "per_device_train_batch_size": 4,
        "lora_r": 8,
        "lora_target_modules": ["q_proj", "v_proj"],
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    }
    made = carry_over(job(**given))
    (tmp_path / "sft.yaml").write_text(made.text)
    loaded = load_config(tmp_path / "sft.yaml")
    assert {key: getattr(loaded, key) for key in given if hasattr(loaded, key)}.items() <= given.items()
    assert loaded.use_peft
    assert made.command == "dynotune sft"


def test_a_key_that_changes_updates_says_so_above_it() -> None:
    said = "# Changes updates: a row is a bin of `max_length` tokens"
    packed = carry_over(job(model_name_or_path="m", dataset_name="d.jsonl", packing=True)).text.splitlines()
    assert packed[packed.index("packing: true") - 1].startswith(said)
    assert said not in carry_over(job(model_name_or_path="m", dataset_name="d.jsonl", packing=False)).text


def test_what_cannot_be_carried_over_is_listed_with_the_reason(tmp_path: Path) -> None:
    made = carry_over(
        job(
            Method.DPO,
            model_name_or_path="m",
            beta=0.2,
            packing=True,
            made_up_key=1,
            hub_token="hf_secret",
            learning_rate=Unknown("it comes from the command line"),
        )
    )
    (tmp_path / "dpo.yaml").write_text(made.text)
    assert load_config(tmp_path / "dpo.yaml", into=DPOConfig).beta == 0.2
    said = "\n".join(made.left)
    for part in (
        "packing",
        "made_up_key",
        "hub_token",
        "comes from the command line",
        "dataset_name",
        "code of the script",
    ):
        assert part in said, part
    assert "hf_secret" not in made.text
    assert all(f"# - {sentence}" in made.text for sentence in made.left)


def test_no_secret_is_written_or_said() -> None:
    made = carry_over(
        job(
            model_name_or_path="m",
            dataset_name="https://user:KEYSECRET1@host/x.jsonl",
            hub_tokn="KEYSECRET2",
            learning_rate="hf_KEYSECRET3aaaaaaaaaaaaaaaaaaa",
            model_init_kwargs={"token": "KEYSECRET4"},
        )
    )
    assert "SECRET" not in made.text + str(made.left)
    assert any("`dataset_name`: secrets are not written" in sentence for sentence in made.left)


def test_another_trainers_default_is_carried_over_and_trls_is_not() -> None:
    default = {"learning_rate": Setting("learning_rate", 5e-5, NOWHERE, Known.DEFAULT)}
    assert "5.0e-05" in carry_over(Job(Trainer.TRANSFORMERS, Method.SFT, default)).text
    assert "learning_rate" not in carry_over(Job(Trainer.TRL, Method.SFT, default)).text


def test_a_job_of_another_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="SFT and DPO"):
        carry_over(job(Method.OTHER))


def test_the_command_writes_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"a.yaml": "model_name_or_path: m\ndataset_name: d.jsonl\nlearning_rate: 1e-5\npacking: false\n"})
    target = tmp_path / "sft.yaml"
    words = ["audit", "--config", str(tmp_path / "a.yaml"), "--select", "OPT001", "--write_config", str(target)]
    run(words)
    assert load_config(target).learning_rate == 1e-5
    assert run(words) == 2
    assert "is there already" in capsys.readouterr().err
