"""Promise: where a document says that the run is another configuration's than the one that commands start, it is said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = "model_name_or_path: a/b\ndataset_name: d.jsonl\nlearning_rate: 1.0e-5\noutput_dir: o\nmax_length: {}\n"
RUN = "trl sft --config conf/v1.yaml\n"


def found(folder: Path, readme: str, run: str = RUN, second: str = SFT.format(2048)) -> list[str]:
    files = {"README.md": readme, "run.sh": run, "conf/v1.yaml": SFT.format(1024), "conf/v2.yaml": second}
    return [str(one.place.file) for one in audited(folder, files, select=("CFG010",)).findings]


@pytest.mark.parametrize(
    "readme",
    [
        "The numbers in the report are from `conf/v2.yaml`, `v1` is kept for the record. Start them with\n\n    ./run.sh\n",
        "The released adapter is the one of `conf/v2.yaml`, the script trains it.\n",
        "# x\n\n- `run.sh` trains `conf/v2.yaml` on one card\n- data is in `data/`\n",
        "Results (table 2) were obtained by Anna with\n`conf/v2.yaml`.\n",
        "Our published model was trained with `conf/v2.yaml`.\n",
    ],
)
def test_another_is_described(tmp_path: Path, readme: str) -> None:
    assert found(tmp_path, readme) == ["conf/v2.yaml"]
    held = "# dynotune: ignore[CFG010] started from the queue\n" + SFT.format(2048)
    assert not found(tmp_path / "held", readme, second=held)


@pytest.mark.parametrize(
    ("readme", "run"),
    [
        ("The numbers are from `conf/v1.yaml`; `conf/v2.yaml` is for a later run.\n", RUN),
        ("`conf/v2.yaml` is not used for the report.\n", RUN),
        ("The run of the report: `bash run.sh conf/v2.yaml`, results in the wiki.\n", RUN),
        ("Results are from `conf/v2.yaml`.\n", RUN + "trl sft --config conf/v2.yaml\n"),
        ("Results are from `conf/v2.yaml`.\n", "trl sft --config $1\n"),
        ("Results are from `conf/v2.yaml`.\n", "for v in v1 v2; do trl sft --config conf/$v.yaml; done\n"),
        ("The old results are from `conf/v2.yaml`.\n", RUN),
        ("`conf/v2.yaml`: rank 64\n", RUN),
    ],
)
def test_what_is_started_or_not_said_to_be_the_run(tmp_path: Path, readme: str, run: str) -> None:
    assert not found(tmp_path, readme, run)


def test_a_file_of_other_keys_is_no_other_run(tmp_path: Path) -> None:
    assert not found(tmp_path, "Results are shown by `conf/v2.yaml`.\n", second="plots: [a, b]\ntitle: x\n")
