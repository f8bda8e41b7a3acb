"""Promise: commands are found in scripts of any shape, with the values that reading alone can tell and no others."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.read.launchers import read_launches


def read(text: str, name: str = "run.sh", root: Path = Path("p")) -> list[Launch]:
    return read_launches(root / name, text, root)


def one(text: str, name: str = "run.sh") -> Launch:
    (launch,) = read(text, name)
    return launch


def values(settings: dict[str, Setting] | object) -> dict[str, object]:
    assert hasattr(settings, "items")
    return {name: setting.value for name, setting in settings.items()}


def test_lines_that_go_on_variables_defaults_arrays_and_the_environment() -> None:
    launch = one(
        '#!/bin/bash\nexport WANDB_MODE=offline\nBS=${1:-4}\nLR="${LR:-1e-5}"\nARGS=(--a 1 --b "$BS")\nARGS+=(--c)\n'
        'MORE="--bf16 true --x 2"\nOMP_NUM_THREADS=8 python -u train.py \\\n  --lr $LR "${ARGS[@]}" $MORE \\\n'
        '  --name="run $BS" --targets q v 2>&1 | tee log\n'
    )
    assert launch.program == "train.py"
    assert values(launch.flags) == {
        "lr": 1e-5,
        "a": 1,
        "b": 4,
        "c": True,
        "bf16": True,
        "x": 2,
        "name": "run 4",
        "targets": ["q", "v"],
    }
    assert values(launch.variables) == {"WANDB_MODE": "offline", "OMP_NUM_THREADS": 8}
    assert launch.flags["lr"].place.line == 9
    assert launch.flags["a"].place.line == 5
    assert launch.place.line == 8


@pytest.mark.parametrize(
    ("text", "program", "launcher", "flags"),
    [
        (
            "torchrun --nproc_per_node=8 --standalone t.py --a 1",
            "t.py",
            "torchrun",
            {"nproc_per_node": 8, "standalone": True},
        ),
        ("python -m torch.distributed.run --nproc_per_node 2 t.py", "t.py", "torchrun", {"nproc_per_node": 2}),
        (
            "accelerate launch --config_file a.yaml --multi_gpu t.py",
            "t.py",
            "accelerate launch",
            {"config_file": "a.yaml"},
        ),
        ("accelerate launch -m axolotl.cli.train c.yml", "axolotl train", "accelerate launch", {}),
        ("deepspeed --num_gpus 4 t.py --deepspeed d.json", "t.py", "deepspeed", {"num_gpus": 4}),
        ("srun -N 2 --gpus=8 torchrun --nnodes 2 t.py", "t.py", "srun torchrun", {"N": 2, "nnodes": 2}),
        ("nohup uv run --extra gpu trl sft --config c.yaml &", "trl sft", "", {}),
        ("conda run -n env python t.py", "t.py", "", {}),
        ("env A=1 nice -n 10 python3.11 t.py", "t.py", "", {}),
        ("python -m trl.scripts.dpo --beta 1", "trl dpo", "", {}),
        ("python -m my.train --x 1", "-m my.train", "", {}),
        ("bash -c 'python t.py --x 1'", "t.py", "", {}),
        ("time axolotl train c.yml", "axolotl train", "", {}),
        ("cd x && python t.py", "t.py", "", {}),
        ("if true; then python t.py; fi", "t.py", "", {}),
        ("f() { python t.py --x $1; }\nf 3", "t.py", "", {}),
        ("sbatch <<EOF\n#!/bin/bash\npython t.py\nEOF", "t.py", "", {}),
    ],
)
def test_what_is_started_behind_launchers(text: str, program: str, launcher: str, flags: dict[str, object]) -> None:
    launch = one(text)
    assert (launch.program, launch.launcher) == (program, launcher)
    assert flags.items() <= values(launch.launcher_flags).items()


@pytest.mark.parametrize(
    "text",
    ["ls -la", "pip install trl", "python -c 'print(1)'", "echo python t.py", "# python t.py", "", "wandb login"],
)
def test_what_starts_no_training_is_none(text: str) -> None:
    assert not read(text)


def test_functions_get_their_arguments_and_sums_are_worked_out() -> None:
    launch = one('BS=4\nrun() {\n  python t.py --lr "$1" --n $((BS * 2))\n}\nrun 1e-4\n')
    assert values(launch.flags) == {"lr": 1e-4, "n": 8}


@pytest.mark.parametrize(
    "text",
    [
        "for lr in 1e-5 2e-5; do python t.py --x $lr; done",
        "if [ $A = 1 ]; then X=1; else X=2; fi\npython t.py --x $X",
        "python t.py --x $NOT_SET",
        "python t.py --x $(nproc)",
        "python t.py --x ${A}/b",
    ],
)
def test_what_depends_on_the_run_is_unknown(text: str) -> None:
    launches = read(text)
    assert isinstance(launches[-1].flags["x"].value, Unknown)


def test_overrides_of_llama_factory_are_flags() -> None:
    assert values(one("llamafactory-cli train c.yaml learning_rate=1e-3").flags) == {"learning_rate": 1e-3}


def test_files_are_found_from_the_project_the_scripts_folder_and_where_cd_went(tmp_path: Path) -> None:
    for name in ("a/c.yaml", "b/c2.yaml", "t.py", "a/own.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    text = "python t.py --c a/c.yaml\n"
    text += 'python ${ROOT}/t.py --c $(dirname "$0")/own.yaml\ncd b\npython ../t.py --c c2.yaml --d no.yaml\n'
    launches = read(text, "a/run.sh", tmp_path)
    assert [launch.script for launch in launches] == ["t.py"] * 3
    assert [launch.configs for launch in launches] == [("a/c.yaml",), ("a/own.yaml",), ("b/c2.yaml",)]


def test_what_follows_two_dashes_is_the_launchers() -> None:
    launch = one("axolotl train run.yml --launcher torchrun -- --nproc_per_node 8\n")
    assert "nproc_per_node" not in launch.flags
    assert values(launch.launcher_flags) == {"nproc_per_node": 8}


def test_makefiles_have_their_own_lines_and_variables() -> None:
    text = (
        "CFG ?= sft.yaml\n\ntrain: data\n\t@echo hi\n\tpython train.py --config $(CFG) \\\n\t  --lr 1e-4 --h $$HOME\n"
    )
    launch = one(text, "Makefile")
    assert launch.flags["config"].value == "sft.yaml"
    assert launch.flags["lr"].place.line == 6
    assert isinstance(launch.flags["h"].value, Unknown)
    assert launch.place.line == 5


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=150), st.sampled_from(["a.sh", "Makefile"]))
def test_any_text_is_read(text: str, name: str) -> None:
    read(text, name)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "$A",
                "A=(1 2)",
                "python t.py",
                "${A[@]}",
                "$(",
                ")",
                "f() {",
                "}",
                "f",
                "if",
                "fi",
                "\n",
                "\\\n",
                ";",
                "<<EOF",
                "EOF",
                '"',
                "'",
            ]
        ),
        max_size=25,
    )
)
def test_any_shell_like_text_is_read(parts: list[str]) -> None:
    read(" ".join(parts))


def test_a_function_that_calls_itself_and_long_words_end() -> None:
    assert len(read("f() { python t.py; f; f; }\nf\n")) < 3_000
    read("A=x\n" + "A=$A$A\n" * 60 + "python t.py $A\n")
    read("A=(1)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40 + 'python t.py "${A[@]}"\n')


def test_a_module_is_the_file_that_it_is(tmp_path: Path) -> None:
    """`-m package.module`, through launchers too; one that the project lacks stays a module."""
    for name in ("job/train.py", "src/deep/go.py", "job/all/__main__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    text = (
        "python -m job.train\naccelerate launch -m job.train\ntorchrun -m deep.go\npython -m job.all\npython -m a.b\n"
    )
    found = [launch.script for launch in read(text, root=tmp_path)]
    assert found == ["job/train.py", "job/train.py", "src/deep/go.py", "job/all/__main__.py", ""]


def test_what_is_sourced_has_values(tmp_path: Path) -> None:
    """Of the project's own files; what is elsewhere stays unknown, and files that source each other come to an end."""
    (tmp_path / "run.env").write_text("LR=1e-4\nexport ROWS=4\n. ./run.env\n")
    text = (
        "source run.env\n. /etc/machine.env\nTOTAL=128\npython t.py --lr $LR --acc $((TOTAL / 8 / ROWS)) --x $OTHER\n"
    )
    (launch,) = read(text, root=tmp_path)
    assert {name: launch.flags[name].value for name in ("lr", "acc")} == {"lr": 1e-4, "acc": 4}
    assert isinstance(launch.flags["x"].value, Unknown)
    assert launch.flags["lr"].place.file == "run.sh"
    assert values(launch.variables) == {"ROWS": 4}


@pytest.mark.parametrize(
    ("text", "value"),
    [("64 / 8 / 4", 2), ("2 * 3 * 4", 24), ("64 / (2 * 4)", 8), ("7 / 2", 3), ("9 - 2", 7), ("64 / (2 * ${N:-4})", 8)],
)
def test_arithmetic_of_a_shell(text: str, value: int) -> None:
    assert one(f"python t.py --a $(({text}))").flags["a"].value == value


@pytest.mark.parametrize("text", ["1 + 2 * 3", "8 / 0", "X * 2", "2 ** 3", "1 << 4"])
def test_arithmetic_that_is_not_worked_out(text: str) -> None:
    assert isinstance(one(f"python t.py --a $(({text}))").flags["a"].value, Unknown)
