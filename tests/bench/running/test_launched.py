"""Promise: a bench under torchrun is one bench, on as many GPUs."""

import pytest

from dynotune.bench.running.launched import on_as_many, taken_over
from dynotune.cli import run
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError


def environment(rank: int, world: int = 2) -> dict[str, str]:
    """As torchrun makes it."""
    return {
        "PATH": "/bin", "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "RANK": str(rank),
        "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x",
        "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
    }  # fmt: skip


def test_the_first_process_measures_and_its_arms_are_no_ranks_of_the_launcher() -> None:
    first, second = environment(0), environment(1)
    assert taken_over(first) == 2
    assert first == {"PATH": "/bin", "OMP_NUM_THREADS": "1"}
    assert taken_over(second) is None
    alone = {"PATH": "/bin"}
    assert taken_over(alone) == taken_over(environment(0, world=1)) == 1  # the controls
    with pytest.raises(ConfigError, match="several machines"):
        taken_over({**environment(0), "LOCAL_WORLD_SIZE": "1"})


@pytest.mark.parametrize("missing", ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_a_size_without_a_rank_is_no_launcher(missing: str) -> None:
    """A variable left over in a shell. A bench that took itself for another's second rank would measure nothing, and end
    well."""
    left = {name: value for name, value in environment(1).items() if name != missing}
    with pytest.raises(ConfigError, match=f"`WORLD_SIZE=2` is set, but not {missing}, .* Unset WORLD_SIZE"):
        taken_over(left)


def test_as_many_gpus_are_measured() -> None:
    assert on_as_many(SFTConfig(), 2).gpus == on_as_many(SFTConfig(gpus=2), 2).gpus == 2
    assert on_as_many(SFTConfig(), 1).gpus is None
    with pytest.raises(ConfigError, match="`gpus: 4` disagrees with the 2 processes"):
        on_as_many(SFTConfig(gpus=4), 2)


def test_the_other_processes_do_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Control: the first one finds that nothing was asked."""
    for name, value in environment(1).items():
        monkeypatch.setenv(name, value)
    words = ["bench", "--model_name_or_path", "m", "--dataset_name", "rows.jsonl"]
    assert run(words) == 0
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("RANK", "0")
    assert run(words) == 2
    assert "nothing to compare" in capsys.readouterr().err
