"""Promises: any number of processes gives the same data set in the same order, and a process that dies is an error."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from dynotune.data import ingest
from dynotune.data.tokens.encode import Encoder
from dynotune.data.workers import copy, cores, pool
from dynotune.data.workers import encode as module
from dynotune.data.workers.encode import encode_chunks
from dynotune.data.workers.pool import Pool
from dynotune.errors import DataError
from tests.data.made_tokenizer import GENERATION, made_tokenizer
from tests.data.store.made import ROWS, chat, config_of, load, same, write


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "CHUNK_ROWS", 7)


@pytest.fixture(params=["copies", "programs"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How processes come to be. What runs the tests may have threads that wait, which harm no copy."""
    if request.param == "copies" and not pool.FORKS:
        pytest.skip("no fork here")
    monkeypatch.setattr(copy, "_python_threads", lambda: 1 if request.param == "copies" else 2)
    monkeypatch.setattr(copy, "_other_threads", lambda: False)
    return str(request.param)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this process has threads, so that it is not copied."""
    monkeypatch.setattr(module, "_copies", lambda *given: None)


def test_processes_give_what_one_gives(tmp_path: Path, way: str) -> None:
    rows = [ROWS[i % len(ROWS)] for i in range(60)] + [chat("q" * n, "a" * n) for n in range(1, 40)]
    data = write(tmp_path / "data.jsonl", rows)
    runs = [tmp_path / "one", tmp_path / "three"]
    for run in runs:
        run.mkdir()
    one = load(data, run=runs[0], token_cache="off", dataset_num_proc=1)
    three = load(data, run=runs[1], token_cache="off", dataset_num_proc=3)
    assert same(one, three)
    assert len(one.examples) > 80
    assert (runs[0] / "quarantine.jsonl").read_bytes() == (runs[1] / "quarantine.jsonl").read_bytes()


def test_the_first_bad_row_is_raised_whichever_process_meets_it(tmp_path: Path, way: str) -> None:
    rows = [chat("a", "b") for _ in range(30)]
    data = write(tmp_path / "data.jsonl", [*rows, {"first": 1}, *rows, {"second": 2}])
    with pytest.raises(DataError, match=r"data\.jsonl:31: "):
        load(data, token_cache="off", dataset_num_proc=2, on_bad_row="error")


def test_threads_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None) -> None:
    data = write(tmp_path / "data.jsonl", [chat("q" * n, "a" * n) for n in range(1, 80)] + ROWS * 10)
    monkeypatch.setattr(module, "WORTH_STARTING", 1e9)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    assert same(load(data, token_cache="off"), load(data, token_cache="off", dataset_num_proc=1))


def test_threads_do_not_mix_their_generated_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    data = write(tmp_path / "data.jsonl", [chat("q" * n, "a" * n) for n in range(1, 200)])
    monkeypatch.setattr(module, "WORTH_STARTING", 1e9)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        many = load(data, made_tokenizer(GENERATION), token_cache="off", assistant_only_loss=True)
    finally:
        sys.setswitchinterval(before)
    one = load(data, made_tokenizer(GENERATION), token_cache="off", assistant_only_loss=True, dataset_num_proc=1)
    assert same(many, one)
    assert len(one.examples) == 199


def test_little_data_and_few_cores_start_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS * 3)
    monkeypatch.setattr(module, "Pool", None)
    monkeypatch.setattr(module, "WORTH_STARTING", 1e9)
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    assert len(load(data, token_cache="off").examples) == 15
    monkeypatch.setattr(module, "WORTH_STARTING", -1.0)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    assert len(load(data, token_cache="off").examples) == 15
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    with pytest.raises(TypeError):  # the control: with more work and cores they would be started
        load(data, token_cache="off")


def test_processes_take_over_from_threads_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS * 40)
    taken: list[int] = []
    real = Pool.submit
    monkeypatch.setattr(Pool, "submit", lambda self, rows: taken.append(1) or real(self, rows))
    pools: list[Pool] = []
    enter, by_threads = Pool.__enter__, module._Threads.submit

    def entered(self: Pool) -> Pool:
        pools.append(self)
        return enter(self)

    def when_programs_are_up(self: Any, rows: Any) -> Any:
        until = time.monotonic() + 300
        while not pools[0].is_up and time.monotonic() < until:
            time.sleep(0.05)
        return by_threads(self, rows)

    monkeypatch.setattr(Pool, "__enter__", entered)
    monkeypatch.setattr(module._Threads, "submit", when_programs_are_up)
    monkeypatch.setattr(module, "usable_cores", lambda: 5)
    monkeypatch.setattr(module, "WORTH_STARTING", -1.0)
    both = load(data, token_cache="off")
    monkeypatch.undo()
    assert 0 < len(taken) < 40
    assert same(both, load(data, token_cache="off", dataset_num_proc=1))


def test_what_cannot_travel_stays_here_and_is_said(tmp_path: Path, programs: None) -> None:
    said: list[str] = []
    tokenizer = made_tokenizer()

    class Own(type(tokenizer)):  # type: ignore[misc]
        pass

    tokenizer.__class__ = Own
    data = write(tmp_path / "data.jsonl")
    loaded = load(data, tokenizer, token_cache="off", dataset_num_proc=2, say=said.append)
    assert same(loaded, load(data, token_cache="off"))
    assert said
    assert said[0].startswith("tokenised in this process alone: the tokenizer cannot be sent to another process")


def test_rows_under_way_are_bounded(tmp_path: Path, way: str) -> None:
    config = config_of(write(tmp_path / "data.jsonl"), dataset_num_proc=2)
    taken = 0

    def rows() -> Iterator[list[Any]]:
        nonlocal taken
        from dynotune.data.rows import Place, Record

        while True:
            taken += 1
            yield [Record(Place("f", taken), {"text": "abc"})]

    encoded = encode_chunks(rows(), config, Encoder(made_tokenizer(), config))
    assert [chunk.rows for chunk in islice(encoded, 20)] == [1] * 20
    assert taken <= 20 + 2 * 3 + 1
    encoded.close()  # type: ignore[attr-defined]


def test_a_process_that_is_killed_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    real = pool._child

    def killed(*given: Any) -> Any:
        child = real(*given)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        return child

    monkeypatch.setattr(pool, "_child", killed)
    with pytest.raises(DataError, match=r"exit status -9: killed.*Set `dataset_num_proc` to fewer"):
        load(write(tmp_path / "data.jsonl"), token_cache="off", dataset_num_proc=2)


def test_processes_that_cannot_be_started_are_an_error_with_a_remedy_and_leave_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    """Each a program of its own."""
    real, children = pool._child, []

    def third_fails() -> Any:
        if len(children) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        children.append(real())
        return children[-1]

    monkeypatch.setattr(pool, "FORKS", False)
    monkeypatch.setattr(pool, "_child", third_fails)
    with pytest.raises(
        DataError, match=r"2 could \(Resource temporarily unavailable\). Set `dataset_num_proc` to fewer"
    ):
        load(write(tmp_path / "data.jsonl"), token_cache="off", dataset_num_proc=1000)
    assert [child.poll() for child in children] == [-signal.SIGKILL] * 2


FORK_FAILS = """
import os
real, forked = os.fork, []
def fork():
    if len(forked) == 2:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    pid = real()
    forked.append(pid)
    return pid
os.fork = fork
"""


@pytest.mark.skipif(not pool.FORKS, reason="no fork here")
def test_workers_that_cannot_be_forked_are_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    monkeypatch.setattr(pool, "BOOTSTRAP", FORK_FAILS + pool.BOOTSTRAP)
    with pytest.raises(
        DataError, match=r"^5 tokenising .* 2 could \(Resource temporarily unavailable\). Set `dataset_num_proc` to"
    ):
        load(write(tmp_path / "data.jsonl"), token_cache="off", dataset_num_proc=5)


def test_programs_that_do_not_fork_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS * 20)
    one = load(data, token_cache="off", dataset_num_proc=1)
    monkeypatch.setattr(pool, "FORKS", False)
    assert same(load(data, token_cache="off", dataset_num_proc=2), one)


def processes_of(group: int) -> list[int]:
    """Those of a process group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not pool.FORKS, reason="no fork here")
def test_a_worker_that_is_killed_is_named_by_its_signal_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: None
) -> None:
    config = config_of(write(tmp_path / "data.jsonl"), dataset_num_proc=3)
    children: list[Any] = []
    real = pool._child
    monkeypatch.setattr(pool, "_child", lambda *given: children.append(real(*given)) or children[-1])

    def rows() -> Iterator[list[Any]]:
        from dynotune.data.rows import Place, Record

        for number in range(1, 1000):
            if number == 30:  # results came, so workers are up
                (program,) = children
                workers = set(processes_of(program.pid)) - {program.pid}
                assert len(workers) == 3
                threads = len(list(Path(f"/proc/{program.pid}/task").iterdir()))
                assert threads == 1, "a program with threads must not fork"
                os.kill(workers.pop(), signal.SIGKILL)
            yield [Record(Place("f", number), {"text": "abc"})]

    with pytest.raises(DataError, match=r"exit status -9: killed.*Set `dataset_num_proc` to fewer"):
        list(encode_chunks(rows(), config, Encoder(made_tokenizer(), config)))
    assert processes_of(children[0].pid) == []


@pytest.mark.skipif(not pool.FORKS, reason="no fork here")
def test_processor_time_of_workers_counts_as_that_of_children(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(pool, "PATIENCE", 120.0)
    letters = random.Random(0)
    words = (
        "".join(letters.choices("abcdefghij", k=12)) for _ in iter(int, 1)
    )  # no word comes twice: none is remembered
    rows = [chat("a question", " ".join(islice(words, 1_000))) for _ in range(400)]
    data = write(tmp_path / "data.jsonl", rows)

    def children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    costs = []
    for some in (rows[:5], rows):
        write(data, some)
        before = children()
        load(data, token_cache="off", dataset_num_proc=2)
        costs.append(children() - before)
    assert costs[1] > costs[0] + 0.1


@pytest.mark.skipif(not pool.FORKS, reason="no fork here")
@pytest.mark.parametrize("made_by", ["Copy", "_child"])
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, made_by: str) -> None:
    data = write(tmp_path / "data.jsonl", ROWS)
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        from dynotune.data.rows import Place, Record
        from dynotune.data.tokens.encode import Encoder
        from dynotune.data.workers import copy, encode, pool
        from dynotune.data.workers.encode import encode_chunks
        from tests.data.made_tokenizer import made_tokenizer
        from tests.data.store.made import config_of
        copy._other_threads = lambda: False
        real = pool.{made_by}
        def child(*given):
            made = real(*given)
            print(made.pid, flush=True)
            return made
        pool.{made_by} = child
        if "{made_by}" == "_child":
            encode._copies = lambda *given: None
        def rows():
            while True:
                yield [Record(Place("f", 1), {{"text": "abc"}})]
        config = config_of(Path({str(data)!r}), dataset_num_proc=2)
        for number, _ in enumerate(encode_chunks(rows(), config, Encoder(made_tokenizer(), config))):
            if number == 20:
                print("works", flush=True)
        """)
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        assert parent.stdout.readline() == "works\n"
        assert len(processes_of(group)) == 3
        parent.kill()
    until = time.monotonic() + 120
    while processes_of(group) and time.monotonic() < until:
        time.sleep(0.05)
    assert processes_of(group) == []


def test_files_in_the_folder_that_a_command_runs_in_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.jsonl")
    for name in ("json", "pickle", "dynotune"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert len(load(data, token_cache="off", dataset_num_proc=2).examples) == 5


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", ROWS * 4)
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        print("the script runs")
        from tests.data.store.made import load
        from pathlib import Path
        print(len(load(Path({str(data)!r}), token_cache="off", dataset_num_proc=2).examples))
        """)
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["the script runs", "20"]


def test_cores_are_those_of_affinity_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert cores._quota(tmp_path, own) is None
    (tmp_path / "a" / "cpu.max").write_text("250000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert cores._quota(tmp_path, own) == 2.5
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cores._quota(tmp_path, own) == 1.5
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 4}, raising=False)
    monkeypatch.setattr(cores, "_quota", lambda: 2.5)
    assert cores.usable_cores() == 3
    monkeypatch.setattr(cores, "_quota", lambda: None)
    assert cores.usable_cores() == 5
