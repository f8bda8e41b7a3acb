"""From the environment that a launcher makes to this process's place among the others."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from dynotune.config.checking.problems import shown
from dynotune.config.keys.run import RunConfig
from dynotune.config.reading.files import MAX_DIGITS
from dynotune.errors import ConfigError
from dynotune.parallel.group import RankGroup
from dynotune.parallel.ranks import Ranks

HOW_TO_START = "`dynotune sft|dpo ... --gpus N` or `torchrun --nproc-per-node N -m dynotune sft|dpo ...`"


def place(config: RunConfig, environment: Mapping[str, str] = os.environ) -> Ranks:
    """Which process this is, by torchrun's variables; the only one without them.

    Raises `ConfigError` where they contradict themselves or the configuration.
    """
    world = _number(environment, "WORLD_SIZE", 1)
    if world < 1:
        raise ConfigError("WORLD_SIZE is 0: there is no process. Unset it, or set it to 1.")
    if world == 1:
        if (config.gpus or 1) > 1:
            raise ConfigError(
                f"`gpus: {config.gpus}` asks for {config.gpus} processes, and this one was started alone. Start with"
                f" {HOW_TO_START}."
            )
        return Ranks()
    if config.gpus not in (None, world):
        raise ConfigError(
            f"`gpus: {config.gpus}` disagrees with the {world} processes that were started (WORLD_SIZE). Keep one."
        )
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise ConfigError(f"WORLD_SIZE is {world}, but {', '.join(missing)} is not set. Start with {HOW_TO_START}.")
    rank, local_rank = _number(environment, "RANK"), _number(environment, "LOCAL_RANK")
    if _number(environment, "LOCAL_WORLD_SIZE", world) != world:
        raise ConfigError(
            f"{world} processes on several machines were started: this version trains on one machine. Start with"
            f" {HOW_TO_START} there."
        )
    if rank >= world:
        raise ConfigError(f"RANK is {rank} and WORLD_SIZE {world}. Start with {HOW_TO_START}.")
    if not config.use_cpu and torch.cuda.is_available() and local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"{world} processes were started for {torch.cuda.device_count()} visible GPUs. Start one a GPU, or set"
            " `use_cpu: true`."
        )
    return Ranks(rank, world, local_rank)


def _number(environment: Mapping[str, str], name: str, default: int = 0) -> int:
    given = environment.get(name, str(default))
    if not given.isdecimal():
        raise ConfigError(f"{name} is {shown(given)}, not a number of processes. Unset it, or set it to 1.")
    return int(given[:MAX_DIGITS])


@contextmanager
def joined(here: Ranks, device: torch.device, timeout: float) -> Iterator[Ranks]:
    """The group of all ranks while the block runs. An error in it ends every rank, and one of them says why."""
    if here.world == 1:
        yield here
        return
    ranks = RankGroup(here.rank, here.world, here.local_rank, device, timeout)
    try:
        yield ranks
    except BaseException as error:
        ranks.fail(error)
        ranks.leave_soon()
        raise
    ranks.close()
