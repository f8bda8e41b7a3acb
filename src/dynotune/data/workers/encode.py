"""Chunks encoded here, and by other processes once there turns out to be enough work for them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from itertools import chain

from dynotune.config.keys.data import DataConfig
from dynotune.data.chunk import Chunk, ChunkEncoder, RowEncoder
from dynotune.data.ingest import Rows
from dynotune.data.tokens.encode import Encoder
from dynotune.data.workers.cores import usable_cores
from dynotune.data.workers.pool import CannotTravelError, Pool, setup_of

WORTH_STARTING = 2.0
"""Seconds. A process takes about as long to start as this; who has tokenised for so long may well need as long again."""


def encode_chunks(
    chunks: Iterator[Rows], config: DataConfig, encoder: RowEncoder, say: Callable[[str], None] = lambda text: None
) -> Iterator[Chunk]:
    """Every chunk encoded, in order, by `dataset_num_proc` processes.

    Unset, it is as many as there are cores, started only when a first part has taken longer than starting them would;
    with less data than that, all is done here. `say` is told where it was asked for and cannot be.
    """
    here = ChunkEncoder(config, encoder)
    asked = config.dataset_num_proc
    processes = usable_cores() if asked is None else asked
    if processes == 1 or not isinstance(encoder, Encoder):
        yield from map(here.encode, chunks)
        return
    if asked is None:
        began = time.perf_counter()
        for rows in chunks:
            yield here.encode(rows)
            if time.perf_counter() - began > WORTH_STARTING:
                break
    first = next(chunks, None)
    if first is None:
        return
    rest = chain([first], chunks)
    try:
        pickle.dumps(first, pickle.HIGHEST_PROTOCOL)
        setup = setup_of(config, encoder.tokenizer)
    except (CannotTravelError, pickle.PicklingError, TypeError, AttributeError) as error:
        why = error if isinstance(error, CannotTravelError) else f"rows cannot be sent to another process ({error})"
        say(f"tokenised in this process alone: {why}")
        yield from map(here.encode, rest)
        return
    with Pool(processes, setup) as pool:
        yield from pool.encode(rest)
