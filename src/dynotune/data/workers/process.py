"""The process that encodes chunks for another: jobs come on stdin, results go to stdout, until stdin ends.

It is started as a program of its own and not by `multiprocessing`: a fork of a process with threads may hang, and a spawn
runs the user's script again, which trains a second time where nothing guards it. Frames are pickles between a process and
its own child; nothing is read from a file.
"""

import gc
import os
import pickle
import sys
import traceback
from typing import IO, Any

BOOTSTRAP = (
    # Ctrl-C and a scheduler's signals reach the whole group; the parent decides what becomes of its children.
    "import signal; [signal.signal(getattr(signal, name), signal.SIG_IGN) for name in ('SIGINT', 'SIGTERM', 'SIGUSR1')"
    " if hasattr(signal, name)]; "
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dynotune.data.workers.process import main; main()"
)


def send(stream: IO[bytes], frame: bytes) -> None:
    stream.write(len(frame).to_bytes(8, "little"))
    stream.write(frame)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next frame, or None where the other side has gone."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "little")
    frame = stream.read(length)
    return frame if len(frame) == length else None


def main() -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not stand between two results
    jobs = sys.stdin.buffer
    setup = receive(jobs)
    if setup is None:
        return
    encoder: Any = None
    failure: Exception | None = None
    try:
        encoder = _encoder(setup)
    except Exception as error:  # noqa: BLE001  (whatever it was, the parent raises it)
        failure = error
    send(results, b"")
    while (job := receive(jobs)) is not None:
        try:
            if failure is not None:
                raise failure
            reply = pickle.dumps((True, encoder.encode(_loads(job))), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  (whatever it was, the parent raises it)
            reply = _failed(error)
        send(results, reply)


def _encoder(setup: bytes) -> Any:
    from dynotune.data.chunk import ChunkEncoder
    from dynotune.data.tokens.encode import Encoder

    gc.set_threshold(200_000, 50, 100)  # rows hold no cycles
    config, tokenizer = _loads(setup)
    return ChunkEncoder(config, Encoder(tokenizer, config))


def _loads(frame: bytes) -> Any:
    return pickle.loads(frame)  # noqa: S301  (from our own parent)


def _failed(error: Exception) -> bytes:
    told = "".join(traceback.format_exception(error))
    try:
        frame = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        _loads(frame)
    except Exception:  # noqa: BLE001  (some exceptions cannot travel)
        return pickle.dumps((False, RuntimeError(f"in a tokenising process:\n{told}")))
    return frame
