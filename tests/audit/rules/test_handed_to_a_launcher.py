"""Promise: a launcher that takes its configuration as a parameter is held against the one that callers hand to it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

QLORA = (
    "base_model: a/b\nadapter: qlora\nload_in_4bit: true\ndatasets:\n  - path: data.jsonl\n    type: alpaca\n"
    "sequence_len: 2048\nmicro_batch_size: 2\nnum_epochs: 3\n"
)
LAUNCH = 'CFG=${1:?config}\naxolotl train "$CFG" --num-epochs 1\n'


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"launch.sh": f"# ./launch.sh configs/chat.yml\n{LAUNCH}"}, ["chat"]),
        ({"launch.sh": LAUNCH, "README.md": "    ./launch.sh configs/qa.yml\n"}, ["qa"]),
        (
            {"launch.sh": LAUNCH, "all.sh": "bash launch.sh configs/qa.yml\nbash launch.sh configs/chat.yml\n"},
            ["chat", "qa"],
        ),
        ({"launch.sh": LAUNCH, "Makefile": "qa:\n\tbash launch.sh configs/qa.yml\n"}, ["qa"]),
        (
            {
                "launch.sh": LAUNCH,
                "Dockerfile": 'FROM a/b:1\nENTRYPOINT ["./launch.sh"]\n',
                "README.md": "    docker run --gpus all \\\n        -e TOKEN image configs/chat.yml\n",
            },
            ["chat"],
        ),
        ({"launch.sh": "axolotl train $2 --num-epochs 1\n", "README.md": "    ./launch.sh 4 configs/qa.yml\n"}, ["qa"]),
        ({"launch.sh": LAUNCH}, []),
        ({"launch.sh": LAUNCH, "README.md": "    ./launch.sh my.yml\n"}, []),
        ({"launch.sh": LAUNCH, "README.md": "    docker run image configs/chat.yml\n"}, []),
        ({"launch.sh": "axolotl train $1\n", "README.md": "    ./launch.sh configs/qa.yml\n"}, []),
        (
            {
                "launch.sh": "# fewer epochs than the yaml, for a trial\naxolotl train $1 --num-epochs 1\n",
                "README.md": "    ./launch.sh configs/qa.yml\n",
            },
            [],
        ),
    ],
)
def test_configurations_that_callers_name(tmp_path: Path, files: dict[str, str], where: list[str]) -> None:
    two = {"configs/chat.yml": QLORA, "configs/qa.yml": QLORA}
    found = audited(tmp_path / "a", {**two, **files}, select=("CFG007",)).findings

    assert sorted(one.place.file for one in found) == [f"configs/{name}.yml" for name in where]


def test_the_only_one_there_is(tmp_path: Path) -> None:
    (found,) = audited(tmp_path / "a", {"a.yml": QLORA, "run.sh": LAUNCH}, select=("CFG007",)).findings
    assert found.place.file == "a.yml"
    assert not audited(tmp_path / "b", {"a.yml": QLORA, "run.sh": "axolotl train $1\n"}, select=("CFG007",)).findings
