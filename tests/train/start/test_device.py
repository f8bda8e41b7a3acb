"""What a launcher says about processes is understood or refused, before anything is set up."""

import pytest

from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.parallel.join import place
from dynotune.train.start.device import set_up_process


@pytest.mark.parametrize("given", ["abc", "", "-1", "1.0", "0", "2", "9" * 5000])
def test_a_number_of_processes_that_cannot_be_had(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", given)
    with pytest.raises(ConfigError, match="WORLD_SIZE is "):
        place(SFTConfig(use_cpu=True))


def test_one_process_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert (place(SFTConfig(use_cpu=True)).rank, place(SFTConfig(use_cpu=True)).world) == (0, 1)
    assert set_up_process(SFTConfig(use_cpu=True)).type == "cpu"
