"""Chunks encoded on all cores, in order: by copies of this process, or by its threads, until other programs are up.

The tokenizer works without Python's lock, but what else a row costs holds it: a fifth of all work on one core. So threads
keep two cores busy, and four with much waiting for one another, and processes, which get lines as they were read, all. A
copy of this process is there at once. Where it cannot be copied, because it has threads of others, threads begin, and with
more than two cores programs take over once they have loaded what they need.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from itertools import chain, islice

from dynotune.config.keys.data import DataConfig
from dynotune.data.chunk import Chunk, ChunkEncoder, RowEncoder
from dynotune.data.ingest import Rows
from dynotune.data.tokens.encode import Encoder
from dynotune.data.workers.copy import NotAloneError
from dynotune.data.workers.cores import usable_cores
from dynotune.data.workers.pool import CannotTravelError, Pool, refuse_unsendable, setup_of

WORTH_COPYING = 4
"""Chunks of data from which on this process is copied: half a second of work of one core, where a copy takes 0.02."""

WORTH_STARTING = 0.2
"""Seconds of work after which programs are started. Until they are up, in less than a second, the work goes on here, so
starting them in vain costs a second of one core and no time."""

FED_BY_THREADS = 2
"""Cores that threads of one process keep busy."""

MOST_THREADS = 4
"""Threads while processes start, and where they cannot: more would only wait for the lock."""

THREADS_OF_ONE = 2
"""Threads where one process was asked for: one renders while the other's rows are in the tokenizer."""


def encode_chunks(
    chunks: Iterator[Rows], config: DataConfig, encoder: RowEncoder, say: Callable[[str], None] = lambda text: None
) -> Iterator[Chunk]:
    """Every chunk encoded, in order, by `dataset_num_proc` processes; unset, by what keeps all cores busy.

    `say` is told where processes were asked for and cannot be.
    """
    asked = config.dataset_num_proc
    if not isinstance(encoder, Encoder):
        yield from map(ChunkEncoder(config, encoder).encode, chunks)
        return
    cores = usable_cores() if asked is None else asked
    wanted = cores > FED_BY_THREADS if asked is None else asked > 1
    first = list(islice(chunks, 1 if asked else WORTH_COPYING))
    under_way: deque[Future[Chunk]] = deque()
    with ExitStack() as stack:
        stack.enter_context(seldom_collected())
        threads = _Threads(config, encoder, min(cores, MOST_THREADS) if asked is None else THREADS_OF_ONE)
        stack.callback(threads.close)
        pool: Pool | None = None
        if cores > 1 and len(first) == (1 if asked else WORTH_COPYING):
            pool = _copies(stack, cores, config, encoder, first[0])
        began = time.perf_counter()
        for rows in chain(first, chunks):
            if wanted and pool is None and (asked or time.perf_counter() - began > WORTH_STARTING):
                try:
                    setup = setup_of(config, encoder.tokenizer, rows)
                except CannotTravelError as error:
                    say(f"tokenised in this process alone: {error}")
                    wanted = False
                else:
                    pool = stack.enter_context(Pool(cores, setup))
            # Until programs are up, the work goes on here. Copies are, and a process that was asked for is waited for.
            target = pool if pool is not None and (pool.is_copy or asked or pool.is_up) else threads
            under_way.append(target.submit(rows))
            while len(under_way) > target.most_under_way:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _copies(stack: ExitStack, number: int, config: DataConfig, encoder: Encoder, rows: Rows) -> Pool | None:
    """Processes that are copies of this one, or None where it has threads or rows like these cannot be sent."""
    with suppress(NotAloneError, CannotTravelError):
        refuse_unsendable(rows)
        return stack.enter_context(Pool(number, (config, encoder.tokenizer)))
    return None


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Rows are trees of many small objects without cycles: looking for some at the usual pace costs a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Threads:
    """Threads of this process, each with an encoder of its own over the same tokenizer."""

    def __init__(self, config: DataConfig, encoder: Encoder, number: int) -> None:
        self.config, self.encoder = config, encoder
        number = number if encoder.thread_safe else 1
        self.most_under_way = number
        self._threads = ThreadPoolExecutor(number, "dynotune-tokenise")
        self._own = threading.local()

    def submit(self, rows: Rows) -> Future[Chunk]:
        return self._threads.submit(self._encode, rows)

    def _encode(self, rows: Rows) -> Chunk:
        mine: ChunkEncoder | None = getattr(self._own, "encoder", None)
        if mine is None:
            # What rendering remembers of a template is not made for several threads.
            mine = self._own.encoder = ChunkEncoder(self.config, Encoder(copy(self.encoder.tokenizer), self.config))
        return mine.encode(rows)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
