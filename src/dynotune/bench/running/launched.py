"""A bench under torchrun. It starts processes of its own, with and without what differs, so the first of torchrun's goes on
alone, for as many GPUs as torchrun was asked for, and the others leave before they touch one."""

from collections.abc import MutableMapping

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError

OF_LAUNCHER = frozenset(
    {
        "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
        "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    }
)  # fmt: skip

OF_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""That torchrun sets beside `WORLD_SIZE`."""


def taken_over(environment: MutableMapping[str, str]) -> int | None:
    """Processes that a launcher started, 1 without one; None where this is not their first, which is to leave.

    environment: from which the launcher's variables are taken, so that processes of the bench are not held for its ranks.
    Raises `ConfigError` where they are on several machines, and where a variable of a launcher is left over without one.
    """
    world = environment.get("WORLD_SIZE", "1")
    if not world.isdecimal() or int(world) <= 1:
        return 1
    if missing := [name for name in OF_RANK if name not in environment]:
        raise ConfigError(
            f"`WORLD_SIZE={world}` is set, but not {', '.join(missing)}, as torchrun would. Unset WORLD_SIZE, and"
            " ask for several GPUs with `--gpus`."
        )
    if environment["LOCAL_WORLD_SIZE"] != world:
        raise ConfigError(f"{world} processes on several machines were started: a bench measures on one machine.")
    if environment["RANK"] != "0":
        return None
    for name in [*environment]:
        if name in OF_LAUNCHER or name.startswith("TORCHELASTIC_"):
            del environment[name]
    return int(world)


def on_as_many(config: WholeConfig, world: int) -> WholeConfig:
    """`config`, for as many GPUs as a launcher started processes. Raises `ConfigError` where it names another number."""
    if world == 1:
        return config
    if config.gpus not in (None, world):
        raise ConfigError(
            f"`gpus: {config.gpus}` disagrees with the {world} processes that torchrun started. Keep one."
        )
    return config.replace(gpus=world)
