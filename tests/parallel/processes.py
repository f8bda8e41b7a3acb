"""Several processes of one run in a test: forked from a server that has imported everything once."""

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.parallel.work"])


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def on_ranks(
    world: int,
    work: Callable[..., None],
    *args: Any,
    folder: Path,
    seconds: float = 90.0,
    check: bool = True,
    store: bool = False,
) -> Sequence[int | None]:
    """Run `work(*args)` in `world` processes as torchrun starts them. Returns their exit codes.

    What rank n prints is in `folder/out-n`. check: all of them end well, or the test fails with what they said. store: the
    ranks meet at one that outlives them, as torchrun keeps it, and not at the first rank's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    kept = dist.TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False) if store else None
    started = [
        CONTEXT.Process(
            target=_start, args=(rank, world, port, str(folder / f"out-{rank}"), kept is not None, work, args)
        )
        for rank in range(world)
    ]
    for one in started:
        one.start()
    deadline = time.monotonic() + seconds
    for one in started:
        one.join(max(0.1, deadline - time.monotonic()))
    hanging = [one for one in started if one.is_alive()]
    for one in hanging:
        one.kill()
        one.join()
    codes = [one.exitcode for one in started]
    if check or hanging:
        said = "\n".join(f"--- rank {rank}\n{(folder / f'out-{rank}').read_text()[-3000:]}" for rank in range(world))
        assert codes == [0] * world, f"{codes}, hanging: {len(hanging)}\n{said}"
    return codes


def _start(
    rank: int, world: int, port: int, out: str, store: bool, work: Callable[..., None], args: Sequence[Any]
) -> None:
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_USE_AGENT_STORE": str(store),
    }  # fmt: skip
    try:
        work(*args)
    except BaseException:  # noqa: BLE001  (the process ends here, whatever it was)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(2)
    sys.stdout.flush()
    os._exit(0)
