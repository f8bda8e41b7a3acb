"""Several processes of one run in a test: forked from a server that has imported everything once."""

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.parallel.work"])


@contextmanager
def held_port() -> Iterator[int]:
    """A port that nobody else is given meanwhile: it is bound, but nobody listens, so that who reuses addresses, as a store
    does, can listen at it. One that was only looked up may be another process's by the time that it is needed."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


def on_ranks(
    world: int,
    work: Callable[..., None],
    *args: Any,
    folder: Path,
    seconds: float = 300.0,
    check: bool = True,
    store: bool = False,
) -> Sequence[int | None]:
    """Run `work(*args)` in `world` processes as torchrun starts them. Returns their exit codes.

    What rank n prints is in `folder/out-n`. check: all of them end well, or the test fails with what they said. store: the
    ranks meet at one that outlives them, as torchrun keeps it, and not at the first rank's. seconds: after which they are
    taken to hang, on however busy a host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with held_port() as port:
        codes, hanging = _ended(world, port, work, args, folder, seconds, store)
    if check or hanging:
        said = "\n".join(f"--- rank {rank}\n{(folder / f'out-{rank}').read_text()[-3000:]}" for rank in range(world))
        assert codes == [0] * world, f"{codes}, hanging: {hanging}\n{said}"
    return codes


def _ended(
    world: int, port: int, work: Callable[..., None], args: Sequence[Any], folder: Path, seconds: float, store: bool
) -> tuple[Sequence[int | None], int]:
    """Exit codes, and how many had to be ended."""
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
    return [one.exitcode for one in started], len(hanging)


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
