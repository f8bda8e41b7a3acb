"""Promise: settings that a script reads from a file of its own are followed through what it makes of them: filters
by the names that a class takes, splits, loops, sections. What a filter drops without a word is said."""

from pathlib import Path

import pytest

from dynotune.audit.facts.job import Fate, Job
from dynotune.audit.run import Result
from tests.audit.made_up import audited

HEAD = "import dataclasses, inspect, json, sys\nimport yaml\nfrom trl import SFTConfig, SFTTrainer\n"
FLAT = (
    "model: Qwen/Qwen2.5-0.5B\nmax_seq_length: 2048\nlearning_rate: 3.0e-4\nper_device_train_batch_size: 3\n"
    "output_dir: runs/a\n"
)
TABLES = (
    'model = "Qwen/Qwen2.5-0.5B"\n[trainer]\nmax_seq_length = 2048\nlearning_rate = 3e-4\nper_device_train_batch_size = 3\n'
    'output_dir = "runs/a"\n'
)
LOADS = "with open(sys.argv[1] if len(sys.argv) > 1 else 'sft.yaml') as file:\n    raw = yaml.safe_load(file)\n"
TRAINS = "SFTTrainer(raw['model'], args=args, train_dataset=rows).train()\n"
NAMES = "names = {f.name for f in dataclasses.fields(SFTConfig) if f.init}\n"
KEPT = "args = SFTConfig(**{k: v for k, v in raw.items() if k in names})\n"


def result(folder: Path, code: str, config: str = FLAT, name: str = "sft.yaml", **more: str) -> Result:
    return audited(folder, {"train.py": HEAD + code, name: config, "requirements.txt": "trl==1.0.0\n", **more})


def the_job(found: Result) -> Job:
    (job,) = found.project.jobs
    return job


FILTERS = {
    "fields": f"{NAMES}{KEPT}",
    "signature": f"names = inspect.signature(SFTConfig.__init__).parameters\n{KEPT}",
    "signature of the class": f"names = set(inspect.signature(SFTConfig).parameters.keys())\n{KEPT}",
    "argspec": f"names = inspect.getfullargspec(SFTConfig.__init__).args\n{KEPT}",
    "dataclass fields": f"names = SFTConfig.__dataclass_fields__\n{KEPT}",
    "annotations": f"names = list(SFTConfig.__annotations__)\n{KEPT}",
    "hasattr": "args = SFTConfig(**{k: v for k, v in raw.items() if hasattr(SFTConfig, k)})\n",
    "over the names": "args = SFTConfig(**{f.name: raw[f.name] for f in dataclasses.fields(SFTConfig) if f.name in raw})\n",
    "by the common keys": f"{NAMES}args = SFTConfig(**{{k: raw[k] for k in raw.keys() & names}})\n",
    "a loop": f"{NAMES}kw = {{}}\nfor k, v in raw.items():\n    if k in names:\n        kw[k] = v\nargs = SFTConfig(**kw)\n",
    "a loop that goes on": (
        f"{NAMES}kw = dict()\nfor k in raw:\n    if k not in names:\n        continue\n    kw[k] = raw[k]\n"
        "args = SFTConfig(**kw)\n"
    ),
    "set on it": (
        "args = SFTConfig(output_dir='o')\nfor k, v in raw.items():\n    if hasattr(args, k):\n        setattr(args, k, v)\n"
    ),
    "a helper": (
        "def pick(cls, table):\n    known = {f.name for f in dataclasses.fields(cls)}\n"
        "    return cls(**{k: v for k, v in table.items() if k in known})\nargs = pick(SFTConfig, raw)\n"
    ),
    "a helper that splits": (
        "def split(table):\n    names = {f.name for f in dataclasses.fields(SFTConfig)}\n"
        "    ours = {k: v for k, v in table.items() if k not in names}\n"
        "    theirs = {k: v for k, v in table.items() if k in names and k not in ('model',)}\n    return ours, theirs\n"
        "ours, theirs = split(raw)\ntheirs.setdefault('seed', 5)\nargs = SFTConfig(**theirs)\n"
    ),
}


@pytest.mark.parametrize("shape", FILTERS)
def test_a_filter_by_what_the_class_takes_is_followed(tmp_path: Path, shape: str) -> None:
    job = the_job(result(tmp_path, LOADS + FILTERS[shape] + TRAINS))
    assert (job.get("learning_rate"), job.get("per_device_train_batch_size")) == (3e-4, 3)
    assert job.get("model_name_or_path") == "Qwen/Qwen2.5-0.5B"
    assert job.place("learning_rate").file == "sft.yaml"
    assert not job.holes
    assert job.get("max_length") != 2048, "the class of TRL 1.0 has no `max_seq_length`, so that it is not set"


@pytest.mark.parametrize("shape", sorted(FILTERS.keys() - {"by the common keys", "a helper that splits"}))
def test_what_a_filter_drops_without_a_word_is_a_finding(tmp_path: Path, shape: str) -> None:
    found = [one for one in result(tmp_path, LOADS + FILTERS[shape] + TRAINS).findings if one.code == "CFG002"]
    (finding,) = found
    assert "`max_seq_length` is dropped without a word" in finding.message
    assert (finding.place.file, finding.place.line) == ("sft.yaml", 2)
    assert {place.file for place in finding.also} == {"train.py"}


@pytest.mark.parametrize(
    "reads",
    [
        "cut = raw['max_seq_length']\n",
        "if set(raw) - names:\n    raise ValueError('keys that nobody takes')\n",
        "print('ignored:', set(raw) - names)\n",
        "prepare(**{k: v for k, v in raw.items() if k not in names})\n",
        "left = raw.keys() - names\n" + 9 * "\n" + "print('Not for the trainer:', left)\n",
        "adapter = LoraConfig(**{k: v for k, v in raw.items() if k in {f.name for f in dataclasses.fields(LoraConfig)}})\n",
    ],
)
def test_no_word_of_a_key_that_is_read_or_spoken_of(tmp_path: Path, reads: str) -> None:
    """A control: the script reads the key itself, stops at such keys, shows them, or hands what is left to somebody."""
    found = result(tmp_path, f"{LOADS}{NAMES}{reads}{KEPT}{TRAINS}")
    assert not [one for one in found.findings if "dropped without a word" in one.message]


def test_a_file_for_older_and_newer_versions_drops_nothing(tmp_path: Path) -> None:
    config = FLAT.replace("max_seq_length: 2048", "max_seq_length: 2048\nmax_length: 2048")
    found = result(tmp_path, f"{LOADS}{NAMES}{KEPT}{TRAINS}", config)
    assert the_job(found).get("max_length") == 2048
    assert not [one for one in found.findings if "dropped without a word" in one.message]


@pytest.mark.parametrize(
    "body",
    [
        "    if k == 'lr':\n        k = 'learning_rate'\n    kw[k] = v\n",
        "    if k == 'learning_rate':\n        v = v / 100\n    kw[k] = v\n",
        "    k = k.replace('-', '_')\n    kw[k] = v\n",
        "    if k == 'stop':\n        break\n    kw[k] = v\n",
        "    try:\n        SFTConfig(**{k: v})\n    except TypeError:\n        continue\n    kw[k] = v\n",
    ],
)
def test_a_loop_that_changes_its_own_names_or_ends_early_is_a_hole(tmp_path: Path, body: str) -> None:
    """What is not followed is said; no value of the file is taken for what the loop makes of it."""
    config = "lr: 1.0e-3\nlearning_rate: 1.0e-3\nstop: 1\nbogus: 2\noutput_dir: runs/a\nmodel: Qwen/Qwen2.5-0.5B\n"
    found = result(
        tmp_path, f"{LOADS}kw = {{}}\nfor k, v in raw.items():\n{body}args = SFTConfig(**kw)\n{TRAINS}", config
    )
    job = the_job(found)
    assert job.holes
    assert job.get("learning_rate") != 1e-3
    assert not [one for one in found.findings if one.code in ("CFG001", "CFG002", "OPT002")]


def test_what_stands_behind_more_items_than_are_gone_through_is_a_hole(tmp_path: Path) -> None:
    config = "".join(f"key_{number}: 1\n" for number in range(450)) + FLAT
    assert the_job(result(tmp_path, f"{LOADS}{NAMES}{KEPT}{TRAINS}", config)).holes


def test_many_loops_over_one_object_are_a_hole_and_no_long_wait(tmp_path: Path) -> None:
    loops = "kw = {'seed': 1}\n" + 60 * "for k in list(kw):\n    kw[k] = kw[k]\n"
    found = result(tmp_path, f"{LOADS}{loops}args = SFTConfig(**kw)\n{TRAINS}")
    assert the_job(found).holes


def test_a_suppression_takes_it_out(tmp_path: Path) -> None:
    config = FLAT.replace("2048", "2048  # dynotune: ignore[CFG002] kept for an old release")
    found = result(tmp_path, LOADS + FILTERS["fields"] + TRAINS, config)
    assert [one.finding.code for one in found.suppressed] == ["CFG002"]


def test_keys_that_are_misspelt_or_anothers_are_dropped_as_well(tmp_path: Path) -> None:
    config = FLAT + "gradient_acumulation_steps: 4\nmicro_batch_size: 8\nnote: for the lab\n"
    found = result(tmp_path, LOADS + FILTERS["fields"] + TRAINS, config)
    dropped = {one.place.key: one.code for one in found.findings if "dropped without a word" in one.message}
    assert dropped == {"max_seq_length": "CFG002", "gradient_acumulation_steps": "CFG001", "micro_batch_size": "CFG001"}


OF_CFG = (
    "args = SFTConfig(learning_rate=cfg.learning_rate, per_device_train_batch_size=cfg.per_device_train_batch_size)\n"
)
PYDANTIC = (
    "from pydantic import BaseModel\nclass Train(BaseModel):\n    learning_rate: float = 1.0\n"
    "    per_device_train_batch_size: int = 9\n"
)
LISTED = "('output_dir', 'learning_rate', 'per_device_train_batch_size')"
UPDATED = "kw = {'learning_rate': 1.0}\nkw.update({k: raw[k] for k in raw if k not in ('model', 'max_seq_length')})\n"
SHAPES = {
    "taken out first": "name = raw.pop('model')\nraw.pop('max_seq_length', None)\nargs = SFTConfig(**raw)\n",
    "deleted": "name = raw['model']\ndel raw['model'], raw['max_seq_length']\nargs = SFTConfig(**raw)\n",
    "a list of names": f"args = SFTConfig(**{{k: raw[k] for k in {LISTED}}})\n",
    "not a list of names": "args = SFTConfig(**{k: v for k, v in raw.items() if k not in {'model', 'max_seq_length'}})\n",
    "joined": (
        "rest = {k: v for k, v in raw.items() if not k.startswith('m')}\nargs = SFTConfig(**(rest | {'seed': 3}))\n"
    ),
    "updated": f"{UPDATED}args = SFTConfig(**kw)\n",
    "a namespace": f"from types import SimpleNamespace\ncfg = SimpleNamespace(**raw)\n{OF_CFG}",
    "Munch": f"from munch import Munch\ncfg = Munch(raw)\n{OF_CFG}",
    "pydantic": f"{PYDANTIC}cfg = Train(**raw)\n{OF_CFG}",
    "validated": f"{PYDANTIC}cfg = Train.model_validate(raw)\n{OF_CFG}",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_other_ways_from_a_file_to_the_arguments(tmp_path: Path, shape: str) -> None:
    job = the_job(result(tmp_path, LOADS + SHAPES[shape] + TRAINS))
    assert (job.get("learning_rate"), job.get("per_device_train_batch_size")) == (3e-4, 3)
    assert not [key for key in job.given if key.fate in (Fate.UNKNOWN, Fate.RENAMED)]


def test_tables_of_a_toml_and_the_launcher_that_names_it(tmp_path: Path) -> None:
    code = (
        "import tomllib\nfrom pathlib import Path\nraw = tomllib.loads(Path(sys.argv[1]).read_text())\n"
        "table = raw['trainer']\nnames = SFTConfig.__annotations__\n"
        f"args = SFTConfig(**{{k: v for k, v in table.items() if k in names}})\n{TRAINS}"
    )
    job = the_job(result(tmp_path, code, TABLES, "conf/a.toml", **{"run.sh": "python train.py conf/a.toml\n"}))
    assert job.get("learning_rate") == 3e-4
    assert str(job.place("learning_rate")).startswith("conf/a.toml:4")
