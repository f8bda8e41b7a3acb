"""The program that encodes chunks for another: jobs come on a stream, results go back, until the stream ends.

It is a copy of the process that needs it (`copy`), or, where that has threads, a program of its own, and never one of
`multiprocessing`: a fork of a process with threads may hang, and a spawn runs the user's script again, which trains a second
time where nothing guards it. What costs, importing and loading the tokenizer, happens once: the program, which has one
thread, then forks a worker for each socket that it was given, and waits for them. Frames are pickles between a process and
its own children; nothing is read from a file.
"""

import gc
import json
import os
import pickle
import signal
import socket
import sys
import traceback
from typing import IO, Any, NoReturn

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
    """With sockets in `sys.argv[2]`, a worker for each; without, the one worker of stdin and stdout."""
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not stand between two results
    jobs = sys.stdin.buffer
    sockets = [socket.socket(fileno=number) for number in json.loads(sys.argv[2])]
    setup = receive(jobs)
    if setup is None:
        return
    encoder: Any = None
    failure: Exception | None = None
    try:
        encoder = _encoder(setup)
    except Exception as error:  # noqa: BLE001  (whatever it was, the parent raises it)
        failure = error
    if not sockets:
        send(results, b"")
        serve(jobs, results, encoder, failure)
        return
    gc.collect()
    branch(sockets, results, encoder, failure)


def branch(sockets: list[socket.socket], results: IO[bytes], encoder: Any, failure: Exception | None = None) -> None:
    """Become a worker for each socket, tell on `results` that they are there (or why not), and wait for them."""
    gc.freeze()  # a collection that writes into shared pages would copy them
    workers: dict[int, int] = {}
    try:
        for one in sockets:
            pid = os.fork()
            if not pid:
                _work(one, sockets, encoder, failure)
            workers[pid] = one.fileno()
    except OSError as error:
        end(list(workers))
        send(results, json.dumps([len(workers), error.strerror]).encode())
        return
    send(results, b"")
    for one in sockets:
        one.close()  # a worker that dies is noticed by its socket, which nobody else may hold open
    watch(workers)


def serve(jobs: IO[bytes], results: IO[bytes], encoder: Any, failure: Exception | None) -> None:
    """Answer every job. With a `failure` there is no encoder, and it is the answer."""
    while (job := receive(jobs)) is not None:
        try:
            if failure is not None:
                raise failure
            reply = pickle.dumps((True, encoder.encode(_loads(job))), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  (whatever it was, the parent raises it)
            reply = _failed(error)
        send(results, reply)


def _work(mine: socket.socket, sockets: list[socket.socket], encoder: Any, failure: Exception | None) -> NoReturn:
    status = 1
    try:
        for other in sockets:
            if other is not mine:
                other.close()
        serve(mine.makefile("rb"), mine.makefile("wb"), encoder, failure)
        status = 0
    except OSError:  # the parent has gone
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)  # what the program set up for its own end is not the worker's to do


def watch(workers: dict[int, int]) -> None:
    """Wait for all; where one dies before its time, end the others and die as it did, which tells the parent how."""
    left = set(workers)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            continue
        end(list(left))
        if code < 0:
            if -code != signal.SIGKILL:  # whose handler cannot be set
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


def end(pids: list[int]) -> None:
    """They are our own children and not yet waited for, so the numbers are still theirs."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def _encoder(setup: bytes) -> Any:
    from dynotune.data.chunk import ChunkEncoder
    from dynotune.data.tokens.encode import Encoder
    from dynotune.data.tokens.tokenise import remember_words

    gc.set_threshold(200_000, 50, 100)  # rows hold no cycles
    config, tokenizer = _loads(setup)
    remember_words(tokenizer)
    return ChunkEncoder(config, Encoder(tokenizer, config).get_ready())


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
