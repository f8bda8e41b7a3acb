"""Promise: where settings of a job could not be followed, the audit says where and why; no rule about them has passed."""

from pathlib import Path

import pytest

from dynotune.audit.show import words
from dynotune.audit.show.as_json import as_json
from tests.audit.made_up import audited

HEAD = "import sys\nimport yaml\nfrom trl import SFTConfig, SFTTrainer\nfrom elsewhere import settings_for\n"
TRAINS = "SFTTrainer('Qwen/Qwen2.5-0.5B', args=args, train_dataset=rows).train()\n"
HOLES = {
    "unpacked": ("args = SFTConfig(output_dir='o', **settings_for(sys.argv[1]))\n", 5, "settings_for"),
    "by a name": ("kw = settings_for('a')\nargs = SFTConfig(**kw)\n", 6, "`**kw`"),
    "made elsewhere": ("args = settings_for('a')\n", 6, "settings_for"),
    "a file that is not here": (
        "args = SFTConfig(**yaml.safe_load(open('gone.yaml')))\n",
        5,
        "`gone.yaml` was not read",
    ),
    "updated": (
        "kw = {'seed': 1}\nkw.update(settings_for('a'))\nargs = SFTConfig(**kw)\n",
        6,
        "`kw.update(settings_for('a'))`",
    ),
    "in a loop": (
        "args = SFTConfig(output_dir='o')\nfor k, v in settings_for('a').items():\n    setattr(args, k, v)\n",
        7,
        "what it goes through",
    ),
    "a comprehension": ("args = SFTConfig(**{k: v for k, v in settings_for('a').items()})\n", 5, "`**"),
}


@pytest.mark.parametrize("shape", HOLES)
def test_a_hole_is_said_and_no_rule_about_it_passed(tmp_path: Path, shape: str) -> None:
    code, line, what = HOLES[shape]
    found = audited(tmp_path, {"train.py": HEAD + code + TRAINS})
    (job,) = found.project.jobs
    (hole,) = job.holes
    assert (hole.place.file, hole.place.line) == ("train.py", line)
    (said,) = words.holes(found)
    assert what in said
    assert f"train.py:{line}" in said
    assert "nothing found:" not in words.headline(found)
    assert "OPT001" not in found.passed, "which optimizer it is may stand there"
    assert {one.code for one in found.not_checked if one.why == hole.said} >= {"OPT001", "OPT002"}
    assert as_json(found)["not_followed"]


def test_a_job_without_a_hole_has_a_clean_bill(tmp_path: Path) -> None:
    """A control: the same script, its settings in a file of the project."""
    code = "args = SFTConfig(**yaml.safe_load(open('here.yaml')))\n"
    found = audited(
        tmp_path, {"train.py": HEAD + code + TRAINS, "here.yaml": "output_dir: o\noptim: adamw_torch_fused\n"}
    )
    assert not words.holes(found)
    assert "OPT001" in found.passed
    assert not found.project.jobs[0].holes


def test_what_the_command_line_may_say_is_no_hole_where_the_command_is_here(tmp_path: Path) -> None:
    code = "from trl import TrlParser\n(args,) = TrlParser((SFTConfig,)).parse_args_and_config()\n"
    alone = audited(tmp_path / "alone", {"train.py": HEAD + code + TRAINS})
    assert [hole.why for hole in alone.project.jobs[0].holes]
    started = {
        "train.py": HEAD + code + TRAINS,
        "run.sh": "python train.py --config a.yaml\n",
        "a.yaml": "output_dir: o\n",
    }
    assert not [hole for job in audited(tmp_path / "run", started).project.jobs for hole in job.holes]


def test_a_rule_that_asks_for_what_is_known_counts(tmp_path: Path) -> None:
    """The optimizer is given beside the hole: what is said of it was checked."""
    code = "args = SFTConfig(output_dir='o', optim='adamw_torch_fused', **settings_for('a'))\n"
    found = audited(tmp_path, {"train.py": HEAD + code + TRAINS})
    assert "`**" in words.holes(found)[0]
    assert "OPT001" in found.passed
