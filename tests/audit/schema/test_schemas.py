"""Promise: the keys of a version are those that its classes really have, read without importing it."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from dynotune.audit.facts.job import Fate, Method, Trainer
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.schema import Schemas
from dynotune.audit.schema.beside import sources_in, versions_asked
from dynotune.audit.schema.classes import Packages
from dynotune.audit.schema.generate import generate
from dynotune.audit.schema.moved import TRANSFORMERS, TRL
from dynotune.audit.schema.origin import version_of_source


@pytest.mark.long
def test_what_is_read_is_what_python_makes_of_the_classes() -> None:
    trl = pytest.importorskip("trl")
    schemas = Schemas.of()
    rooms = {
        "SFTConfig": "trainer.sft_config",
        "DPOConfig": "trainer.dpo_config",
        "ModelConfig": "trainer.model_config",
    }
    for name, module in rooms.items():
        read = schemas.fields("trl", module, name)
        real = {field.name: field for field in dataclasses.fields(getattr(trl, name))}
        assert set(read) == set(real)
        for field in real.values():
            default = field.default if field.default is not dataclasses.MISSING else field.default_factory()  # type: ignore[misc]
            assert isinstance(read[field.name].default, Unknown) or read[field.name].default == default, field.name


def test_nothing_is_imported() -> None:
    program = (
        "import sys; from dynotune.audit.schema import Schemas; from dynotune.audit.facts.job import Trainer, Method\n"
        "assert Schemas.of().keys(Trainer.TRL, Method.SFT).known; Schemas.of().keys(Trainer.DYNOTUNE)\n"
        "print([name for name in ('torch', 'trl', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_rename_leads_to_a_key_that_is_there() -> None:
    schemas = Schemas.of()
    keys = {**schemas.keys(Trainer.TRL, Method.SFT).keys, **schemas.keys(Trainer.TRL, Method.DPO).keys}
    for name, moved in {**TRANSFORMERS, **TRL}.items():
        if moved.to and moved.to not in ("activation_checkpointing", "activation_checkpointing_kwargs"):
            assert moved.to in keys, name


def test_a_pinned_older_version_is_believed(tmp_path: Path) -> None:
    keys = Schemas.of().beside({}, {"trl": "0.11.4"}).keys(Trainer.TRL, Method.SFT)
    assert keys.fate("max_seq_length").fate is Fate.KNOWN
    assert keys.fate("whatever").fate is Fate.UNKNOWN  # in no release that was looked at
    assert keys.fate("num_of_sequences").fate is Fate.KNOWN
    before = Schemas.of().beside({}, {"trl": "0.7.0"}).keys(Trainer.TRL, Method.SFT)
    assert before.fate("whatever").fate is Fate.KNOWN  # a release that was not
    assert Schemas.of().keys(Trainer.TRL, Method.SFT).fate("max_seq_length").fate is Fate.RENAMED


SOURCE = """
from dataclasses import dataclass, field
from typing import ClassVar, Literal
import torch_that_is_not_there
from .base import Base

@dataclass
class FlatArguments(Base):
    kind: ClassVar[int] = 3
    rate: float = 1e-5
    mode: Literal["a", "b"] = "a"
    names: list[str] = field(default_factory=list)
    old: int | None = field(default=None, metadata={"help": "Deprecated. Use rate."})
    when: float = field(default_factory=lambda: compute())
"""


def tree(folder: Path) -> Path:
    package = folder / "open-instruct" / "open_instruct"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '1.2.3'\nraise SystemExit('imported')\n")
    (package / "finetune.py").write_text(SOURCE)
    (package / "base.py").write_text("class Base:\n    seed: int = 42\n    needed: str\n")
    git = package.parent / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text("0123456789abcdef0123456789abcdef01234567\n")
    return package.parent


def test_a_given_tree_is_read_at_its_own_commit(tmp_path: Path) -> None:
    given = tree(tmp_path)
    keys = Schemas.of({"open_instruct": given}).keys(Trainer.OPEN_INSTRUCT, Method.SFT)
    assert set(keys.keys) == {"seed", "needed", "rate", "mode", "names", "old", "when"}
    assert keys.keys["mode"].choices == ("a", "b")
    assert keys.keys["needed"].required
    assert keys.keys["names"].default == []
    assert isinstance(keys.keys["when"].default, Unknown)
    assert keys.versions["open_instruct"] == "1.2.3 at 0123456789ab"
    assert "open_instruct 1.2.3 at 0123456789ab" in keys.said_by


def test_packed_references_and_submodules(tmp_path: Path) -> None:
    given = tree(tmp_path)
    git = given / ".git"
    (git / "refs" / "heads" / "main").unlink()
    (git / "packed-refs").write_text("# pack\n" + "f" * 40 + " refs/heads/main\n")
    assert version_of_source(given / "open_instruct").endswith("f" * 12)
    git.rename(tmp_path / "modules")
    git.write_text("gitdir: ../modules\n")
    assert version_of_source(given / "open_instruct").endswith("f" * 12)
    git.unlink()
    assert version_of_source(given / "open_instruct") == "1.2.3"


def test_broken_sources_have_no_keys(tmp_path: Path) -> None:
    given = tree(tmp_path)
    (given / "open_instruct" / "finetune.py").write_text("class FlatArguments(:\n")
    assert not Schemas.of({"open_instruct": given}).keys(Trainer.OPEN_INSTRUCT, Method.SFT).known


@pytest.mark.parametrize(
    "trainer", [Trainer.AXOLOTL, Trainer.LLAMA_FACTORY, Trainer.TRANSFORMERS, Trainer.TRL, Trainer.DYNOTUNE]
)
def test_every_trainer_has_keys_where_nothing_is_installed(trainer: Trainer) -> None:
    from dynotune.audit.schema.classes import Packages

    keys = Schemas(Packages({})).keys(trainer, Method.SFT)
    assert keys.known
    assert "learning_rate" in keys.keys
    assert trainer is Trainer.DYNOTUNE or keys.versions


def test_the_tables_are_generated_from_sources(tmp_path: Path) -> None:
    given = tree(tmp_path)
    written = {path.name: path for path in generate(Schemas.of({"open_instruct": given}), tmp_path / "tables")}
    assert '"rate": ["float", 1e-05]' in written["open_instruct_sft.json"].read_text()


def test_requirements_say_what_runs(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.11.4\ntransformers[torch]>=4.40,<5\npeft\nfast-trl==9\n")
    (tmp_path / "pyproject.toml").write_text('dependencies = ["accelerate~=1.2.0", "trl==1.0"]\n')
    assert versions_asked(tmp_path) == {"trl": "0.11.4", "accelerate": "1.2.0"}
    cells = {"a.ipynb": '!pip install -q "trl==0.9.0" \\\n  "peft==0.17.1"\nprint("axolotl==0.3.0")\n'}
    assert versions_asked(tmp_path, cells) == {"trl": "0.11.4", "accelerate": "1.2.0", "peft": "0.17.1"}
    (tmp_path / "requirements.txt").write_text("transformers<5\n")
    keys = Schemas.of().beside({}, versions_asked(tmp_path)).keys(Trainer.TRANSFORMERS)
    assert keys.fate("overwrite_output_dir").fate is Fate.KNOWN
    assert keys.fate("evaluation_strategy").fate is Fate.RENAMED


def test_a_submodule_in_the_project_is_what_keys_are_checked_against(tmp_path: Path) -> None:
    tree(tmp_path / "third_party")
    found = Schemas.of().beside(sources_in(tmp_path), {})
    assert "rate" in found.keys(Trainer.OPEN_INSTRUCT, Method.SFT).keys
    assert sources_in(tmp_path / "third_party" / "open-instruct" / "open_instruct") == {}


@pytest.mark.parametrize("installed", [True, False])
def test_each_class_of_trl_has_its_own_keys(installed: bool) -> None:
    """Of the installed package and of the shipped table alike; of no class in particular, those of all."""
    from dynotune.audit.schema.classes import Packages

    schemas = Schemas.of() if installed else Schemas(Packages({}))
    every = schemas.keys(Trainer.TRL, Method.OTHER).keys
    reward = schemas.keys(Trainer.TRL, Method.OTHER, "RewardConfig").keys
    assert {"beta", "num_generations", "center_rewards_coefficient"} <= set(every)
    assert {"center_rewards_coefficient", "learning_rate", "lora_r"} <= set(reward)
    assert not {"beta", "num_generations"} & set(reward)
    assert schemas.keys(Trainer.TRL, Method.OTHER, "ORPOConfig").keys == every


@pytest.mark.parametrize(
    ("asked", "key", "fate", "instead"),
    [
        ("", "dpo_beta", Fate.RENAMED, "pref_beta"),
        ("0.9.2", "dpo_beta", Fate.RENAMED, "pref_beta"),
        ("0.7.1", "dpo_beta", Fate.KNOWN, ""),
        ("0.7.1", "pref_beta", Fate.RENAMED, "dpo_beta"),
        ("0.9.2", "pref_beta", Fate.KNOWN, ""),
        ("0.9.2", "add_special_tokens", Fate.RENAMED, "new_special_tokens"),
        ("0.9.4", "new_special_tokens", Fate.RENAMED, "add_special_tokens"),
        ("0.9.2", "split", Fate.REMOVED, ""),
        ("0.8.0", "neat_packing", Fate.REMOVED, ""),
        ("0.8.3", "neat_packing", Fate.KNOWN, ""),
    ],
)
def test_names_of_llama_factory_go_by_its_release(asked: str, key: str, fate: Fate, instead: str) -> None:
    """Renamed keys are told with the release, in either direction."""
    schemas = Schemas(Packages({}), pinned={"llamafactory": asked} if asked else {})
    verdict = schemas.keys(Trainer.LLAMA_FACTORY).fate(key)
    assert (verdict.fate, verdict.instead) == (fate, instead)
