"""Promises of the token store: a hit is what building gave, and what changed is said and built again."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from dynotune.data.chunk import ChunkEncoder
from dynotune.data.store import obtain
from dynotune.data.store.layout import IDS, LABELS, LINES, MANIFEST, OFFSETS, QUARANTINE, DamagedError, Manifest
from dynotune.data.tokens.encode import Encoder
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer
from tests.data.store.made import OLD, ROWS, chat, load, same, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def the_store(cache: Path) -> Path:
    (store,) = (path.parent for path in cache.rglob(MANIFEST))
    return store


def test_a_hit_is_what_building_gave_in_everything_that_a_run_sees(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    runs = [tmp_path / name for name in ("off", "first", "second")]
    for run in runs:
        run.mkdir()
    plain = load(data, run=runs[0], token_cache="off")
    built = load(data, run=runs[1])
    hit = load(data, run=runs[2])
    assert plain.store == "off (`token_cache: off`); tokenised in memory"
    assert built.store.startswith("built: first time; kept in ")
    assert hit.store.startswith("hit: 5 rows in ")
    assert same(built, plain)
    assert same(hit, built)
    assert built.ledger.skipped.total() == 2
    assert built.ledger.notices["conflicting-answer"] == 1
    kept = [(run / "quarantine.jsonl").read_bytes() for run in runs]
    assert kept[0] == kept[1] == kept[2] != b""
    assert np.array_equal(hit.examples.labels, plain.examples.labels)


def test_a_run_without_bad_rows_leaves_no_quarantine(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", ROWS[:4])
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        load(data, run=tmp_path / name)
        assert not (tmp_path / name / "quarantine.jsonl").exists()


def test_labels_are_stored_only_where_they_differ_from_the_ids(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "data.jsonl", [chat("a", "b")]))
    store = the_store(cache)
    assert not (store / LABELS).exists()
    hit = load(tmp_path / "data.jsonl")
    assert hit.examples.labels is hit.examples.ids


def test_touching_a_file_is_a_hit_and_the_next_look_needs_no_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    hashed: list[Path] = []
    from dynotune.data.sources import contents

    real = contents._hash_of
    monkeypatch.setattr(contents, "_hash_of", lambda path: hashed.append(path) or real(path))
    monkeypatch.setattr(contents, "_SETTLED", 0)
    os.utime(data, (OLD_TIME, OLD_TIME))
    assert load(data).store.startswith("hit")
    assert hashed == [data]
    assert load(data).store.startswith("hit")
    assert hashed == [data]  # the new state was noted


OLD_TIME = 1_600_000_000


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def replaced(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("write_anew", [in_place, replaced])
def test_a_change_that_keeps_size_and_time_of_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_anew: Callable[[Path, str], None]
) -> None:
    """Long after the store was built, so that nothing is hashed on suspicion."""
    from dynotune.data.sources import contents

    monkeypatch.setattr(contents, "_SETTLED", 0)
    data = write(tmp_path / "data.jsonl", [chat("a", "b")])
    load(data)
    time.sleep(0.02)  # more than a tick of the file system's clock
    write_anew(data, data.read_text().replace('"b"', '"c"'))
    os.utime(data, (OLD, OLD))
    assert load(data).store.startswith(f"built because the data changed ({data})")


def test_a_change_within_the_clocks_tick_and_of_the_same_size_is_seen(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", [chat("a", "b")])
    load(data)
    state = data.stat()
    data.write_text(data.read_text().replace('"b"', '"c"'))
    os.utime(data, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert load(data).store.startswith(f"built because the data changed ({data})")


def with_token(**changes: Any) -> Callable[[], Any]:
    def make() -> Any:
        tokenizer = made_tokenizer()
        for name, value in changes.items():
            setattr(tokenizer, name, value)
        return tokenizer

    return make


def with_added_token() -> Any:
    tokenizer = made_tokenizer()
    tokenizer.add_tokens(["<new>"])
    return tokenizer


def with_other_merges() -> Any:
    from tokenizers import Tokenizer

    tokenizer = made_tokenizer()
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    told["model"]["merges"] = told["model"]["merges"][:-1]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(told))
    return tokenizer


CHANGES: dict[str, tuple[dict[str, Any], Callable[[], Any], str]] = {
    "columns": ({"columns": {"text": "text"}}, made_tokenizer, "`columns` changed"),
    "text field": ({"dataset_text_field": "other"}, made_tokenizer, "`dataset_text_field` changed"),
    "completion only": ({"completion_only_loss": False}, made_tokenizer, "`completion_only_loss` changed"),
    "template variables": ({"chat_template_kwargs": {"x": 1}}, made_tokenizer, "`chat_template_kwargs` changed"),
    "template": ({}, with_token(chat_template=CHATML + "\n"), "the chat template changed"),
    "end token": (
        {},
        with_token(eos_token="</s>"),
        "the tokenizer's special tokens (end, padding, added tokens) changed",
    ),
    "padding token": (
        {},
        with_token(pad_token="<|eot_id|>"),
        "the tokenizer's special tokens (end, padding, added tokens) changed",
    ),
    "added token": ({}, with_added_token, "the tokenizer's special tokens (end, padding, added tokens) changed"),
    "merges": ({}, with_other_merges, "the tokenizer changed"),
    "splitting": ({}, with_token(split_special_tokens=True), "the tokenizer changed"),
    "slice": (
        {"dataset_train_split": "train[:2]"},
        made_tokenizer,
        "which rows are asked for (slice, mixture) changed",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_part_that_changes_is_named_and_that_part_alone(tmp_path: Path, name: str) -> None:
    keys, tokenizer, said = CHANGES[name]
    data = write(tmp_path / "data.jsonl", ROWS[:4] if "columns" not in keys else ROWS[3:4])
    load(data)
    assert load(data).store.startswith("hit")
    changed = load(data, tokenizer(), **keys)
    assert changed.store.startswith(f"built because {said}; kept in "), changed.store
    assert load(data, tokenizer(), **keys).store.startswith("hit")
    assert load(data).store.startswith("hit")  # the older one is still there


def test_assistant_only_loss_and_bad_rows_are_parts(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", [chat("a", "b")])
    load(data, made_tokenizer(GENERATION))
    said = load(data, made_tokenizer(GENERATION), assistant_only_loss=True).store
    assert said.startswith("built because `assistant_only_loss` changed"), said
    said = load(data, made_tokenizer(GENERATION), on_bad_row="error").store
    assert said.startswith("built because `on_bad_row` changed"), said


def test_versions_own_code_and_format_are_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.data.store import fingerprint, layout

    data = write(tmp_path / "data.jsonl", ROWS[:4])
    load(data)
    real = fingerprint.version
    for package in ("tokenizers", "transformers", "jinja2"):
        with monkeypatch.context() as patch:
            patch.setattr(fingerprint, "version", lambda name, one=package: "0" if name == one else real(name))
            assert "the version of tokenizers, transformers or Jinja changed" in load(data).store
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "_own_code", lambda: "other")
        assert "built because Dynotune's own code changed" in load(data).store
    with monkeypatch.context() as patch:
        patch.setattr(layout, "FORMAT", 99)
        assert "it has format 1, and this version reads 99" in load(data).store


def test_a_changed_line_of_what_makes_tokens_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dynotune.data.store import fingerprint

    copy = tmp_path / "data"
    shutil.copytree(Path(fingerprint.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    own_code = fingerprint._own_code.__wrapped__
    known = own_code()
    monkeypatch.setattr(fingerprint, "__file__", str(copy / "store" / "fingerprint.py"))
    assert own_code() == known
    with (copy / "store" / "prune.py").open("a") as file:
        file.write("# where tokens lie makes no tokens\n")
    assert own_code() == known
    with (copy / "tokens" / "encode.py").open("a") as file:
        file.write("# another line\n")
    assert own_code() != known


def test_code_that_a_tokenizers_repository_brings_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.jsonl", ROWS[:4])
    (tmp_path / "my_tokenizer.py").write_text(
        "from transformers import PreTrainedTokenizerFast\nclass Mine(PreTrainedTokenizerFast): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_tokenizer  # type: ignore[import-not-found]

    def mine() -> Any:
        tokenizer = made_tokenizer()
        tokenizer.__class__ = my_tokenizer.Mine
        return tokenizer

    load(data)
    assert "the tokenizer changed" in load(data, mine()).store
    assert load(data, mine()).store.startswith("hit")
    with (tmp_path / "my_tokenizer.py").open("a") as file:
        file.write("# changed under the same names\n")
    assert "the tokenizer changed" in load(data, mine()).store


def test_every_part_of_the_fingerprint_has_a_test_above(tmp_path: Path, cache: Path) -> None:
    """A part that is added without one fails here."""
    load(write(tmp_path / "data.jsonl", ROWS[:4]), made_tokenizer("{{ strftime_now('%Y') }}" + CHATML))
    assert set(Manifest.read(the_store(cache)).parts) == {
        "columns", "dataset_text_field", "on_bad_row", "completion_only_loss", "assistant_only_loss",
        "chat_template_kwargs", "tokenizer", "special_tokens", "chat_template", "date", "asked", "versions", "dynotune",
        "store_format", "per_example",
    }  # fmt: skip


def test_tokens_depend_on_no_key_that_is_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What encoding asks the configuration for is in the fingerprint: a key that is forgotten there serves wrong tokens."""
    from dynotune.data.store.fingerprint import KEYS

    asked: set[str] = set()

    class Watched:
        def __init__(self, config: Any) -> None:
            self._config = config

        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return getattr(self._config, name)

    for kind in (Encoder, ChunkEncoder):  # several are made: each thread has its own
        at, real = 1 if kind is Encoder else 0, kind.__init__

        def watched(self: Any, *given: Any, at: int = at, real: Any = real) -> None:
            real(self, *given[:at], Watched(given[at]), *given[at + 1 :])

        monkeypatch.setattr(kind, "__init__", watched)
    rows = [*(row for row in ROWS if "messages" in row), {"text": "a b"}, {"prompt": "a ", "completion": "b"}]
    rows = [*rows, {"input_ids": [10, 11, 12]}, {"input_ids": [10, 11, 12], "completion_mask": [0, 1, 1]}]
    load(write(tmp_path / "data.jsonl", rows), made_tokenizer(GENERATION))
    assert {"chat_template_kwargs", "completion_only_loss", "assistant_only_loss", "on_bad_row"} <= asked
    assert asked <= set(KEYS)


def test_a_template_that_writes_the_date_is_rendered_anew_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynotune.data.store import fingerprint

    dated = "{{ strftime_now('%Y') }}" + CHATML
    data = write(tmp_path / "data.jsonl", [chat("a", "b")])
    load(data, made_tokenizer(dated))
    assert load(data, made_tokenizer(dated)).store.startswith("hit")
    monkeypatch.setattr(fingerprint.time, "strftime", lambda *_: "tomorrow")
    assert "built because the date, which the chat template writes changed" in load(data, made_tokenizer(dated)).store


@pytest.mark.parametrize(
    "keys",
    [{"max_length": 4}, {"seed": 7}, {"per_device_train_batch_size": 1}, {"shuffle_dataset": True}, {"test_split_size": 2},
     {"learning_rate": 1.0}, {"truncation_mode": "keep_end"}],
)  # fmt: skip
def test_what_belongs_to_the_plan_is_no_part(tmp_path: Path, keys: dict[str, Any]) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    assert load(data, **keys).store.startswith("hit")


def test_the_files_of_a_folder_are_part_of_its_contents(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "a.jsonl", [chat("a", "b")])
    load(folder)
    write(folder / "b.jsonl", [chat("c", "d")])
    assert load(folder).store.startswith(f"built because the data changed ({folder / 'b.jsonl'} added)")
    (folder / "a.jsonl").unlink()
    assert load(folder).store.startswith(f"built because the data changed ({folder / 'a.jsonl'} gone)")


def test_a_mixture_is_kept_with_its_shares(tmp_path: Path) -> None:
    parts = [
        {"path": str(write(tmp_path / "a.jsonl", [chat("a", str(i)) for i in range(4)])), "fraction": 0.5},
        {"path": str(write(tmp_path / "b.jsonl", [chat("b", "c")])), "fraction": 0.5},
    ]

    def mix(parts: list[dict[str, Any]]) -> Any:
        return load(None, datasets=parts)

    built, hit = mix(parts), mix(parts)
    assert hit.store.startswith("hit")
    assert same(built, hit)
    assert hit.ledger.skipped == {"outside-fraction": 3}
    assert "its first 1 rows (fraction 0.5)" in hit.sources[0]
    assert "which rows are asked for" in mix([parts[0], {**parts[1], "fraction": 0.25}]).store


def test_rows_from_python_are_known_by_their_values(tmp_path: Path) -> None:
    rows = [chat("a", "b"), chat("c", "d")]
    assert load(None, train_dataset=rows).store.startswith("built: first time")
    assert load(None, train_dataset=[dict(row) for row in rows]).store.startswith("hit")
    assert "the rows themselves" in load(None, train_dataset=rows[:1]).store
    odd = load(None, train_dataset=[{"input_ids": np.arange(3)}])
    assert odd.store == "not used: train_dataset holds values that are no plain Python values; tokenised in memory"
    table = Dataset.from_list(rows)
    load(None, train_dataset=table)
    assert load(None, train_dataset=table).store.startswith("hit")
    assert not load(None, train_dataset=table.map(lambda row: chat("x", "y"))).store.startswith("hit")


def test_a_transform_that_is_applied_at_reading_is_not_kept() -> None:
    calls: list[int] = []

    def other_each_time(rows: dict[str, list[str]]) -> dict[str, list[str]]:
        calls.append(1)
        return {"prompt": rows["prompt"], "completion": [f"{'two ' * len(calls)}" for _ in rows["prompt"]]}

    rows = Dataset.from_list([{"prompt": "one ", "completion": "two"}]).with_transform(other_each_time)
    first, second = (load(None, train_dataset=rows) for _ in range(2))
    assert "has a transform" in first.store
    assert first.examples.digest() != second.examples.digest()


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def cut(path: Path, at: int) -> None:
    os.truncate(path, max(0, path.stat().st_size - 10))


@pytest.mark.parametrize("spoil", [flip, cut, lambda path, at: path.unlink()], ids=["a bit", "cut", "gone"])
@pytest.mark.parametrize("name", [IDS, LABELS, OFFSETS, LINES, QUARANTINE, MANIFEST])
def test_damage_is_found_said_and_mended(tmp_path: Path, cache: Path, name: str, spoil: Any) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    plain = load(data, token_cache="off")
    spoil(the_store(cache) / name, 5)
    again = load(data)
    assert again.store.startswith("built"), again.store
    assert again.store.startswith(("built again: the store was damaged (", "built again: the store could not be read"))
    assert same(again, plain)
    assert load(data).store.startswith("hit")


def test_a_manifest_cannot_lead_out_of_its_folder_or_beyond_a_files_end(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "data.jsonl"))
    store = the_store(cache)
    manifest = Manifest.read(store)
    for changes in ({"rows": -1}, {"tokens": 1 << 60}, {"rows": 2.5}, {"checksums": {"../../x": "0"}}):
        wrong = Manifest(**{**manifest.__dict__, **changes})
        (store / MANIFEST).write_bytes(wrong.to_bytes())
        with pytest.raises(DamagedError):
            Manifest.read(store)
    longer = Manifest(**{**manifest.__dict__, "tokens": manifest.tokens + 1000})
    (store / MANIFEST).write_bytes(longer.to_bytes())
    assert "bytes instead of" in load(tmp_path / "data.jsonl").store
    (store / IDS).rename(tmp_path / "elsewhere")
    (the_store(cache) / IDS).symlink_to(tmp_path / "elsewhere")
    assert "is a link" in load(tmp_path / "data.jsonl").store


def forged(**changes: Any) -> Callable[[Path], None]:
    """A manifest with other values and the checksum that belongs to them."""

    def forge(store: Path) -> None:
        manifest = Manifest.read(store)
        (store / MANIFEST).write_bytes(Manifest(**{**manifest.__dict__, **changes}).to_bytes())

    return forge


def forged_account(**changes: Any) -> Callable[[Path], None]:
    def forge(store: Path) -> None:
        account = Manifest.read(store).account
        forged(account={**account, **changes, "ledger": {**account["ledger"], **changes.get("ledger", {})}})(store)

    return forge


def replaced(make: Callable[[Path], Any], name: str = MANIFEST) -> Callable[[Path], None]:
    def replace(store: Path) -> None:
        (store / name).unlink()
        make(store / name)

    return replace


@pytest.mark.parametrize(
    "attack",
    [
        forged(files=[1]),
        forged(files={"a": 1}),
        forged(parts=None),
        forged(contents=[{}]),
        forged(contents=[{"path": 1, "size": 1, "mtime_ns": 1, "ctime_ns": 1, "inode": 1, "looked_at_ns": 1}]),
        forged(statements=3),
        forged(about=None),
        forged(digest=None),
        forged(format=True),
        forged_account(encoder_notices=["x"]),
        forged_account(encoder_notices={"x": "y"}),
        forged_account(ledger={"rows_read": 1000}),
        replaced(os.mkfifo),
        replaced(os.mkfifo, IDS),
        replaced(os.mkdir),
        replaced(lambda path: path.symlink_to("/dev/zero")),
    ],
)
def test_a_manifest_that_another_wrote_neither_stops_a_run_nor_makes_it_wait(
    tmp_path: Path, cache: Path, attack: Callable[[Path], None]
) -> None:
    data = write(tmp_path / "data.jsonl")
    plain = load(data, token_cache="off")
    load(data)
    attack(the_store(cache))
    again = load(data)
    assert again.store.startswith("built again: the store was damaged ("), again.store
    assert same(again, plain)
    assert load(data).store.startswith("hit")


def test_a_store_of_another_user_is_taken_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    assert "belongs to another user" not in load(data).store
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert f"which belongs to another user (number {owner})" in load(data).store


def test_a_link_in_a_store_or_in_its_place_makes_no_file_elsewhere_and_is_replaced(tmp_path: Path, cache: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    store = the_store(cache)
    (store / "used").symlink_to(tmp_path / "elsewhere")
    assert load(data).store.startswith("hit")
    assert not (tmp_path / "elsewhere").exists()
    store.rename(tmp_path / "moved")
    store.symlink_to(tmp_path / "nowhere")
    assert "; kept in " in load(data).store
    assert load(data).store.startswith("hit")
    assert not store.is_symlink()


def test_an_unwritable_place_means_memory_and_is_said(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    (tmp_path / "file").write_text("")
    loaded = load(data, token_cache_dir=str(tmp_path / "file" / "below"))
    assert loaded.store.startswith("not used: ")
    assert loaded.store.endswith("cannot be written (Not a directory); tokenised in memory")
    assert same(loaded, load(data, token_cache="off"))


def test_a_place_that_can_be_read_only_still_serves(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("mkdir", "touch"):
        monkeypatch.setattr(Path, name, refuse)
    assert load(data).store.startswith("hit")


@pytest.mark.parametrize("fails_at", [1, 2, 7, 12, 20])
def test_a_disk_that_fills_up_means_memory_and_loses_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    from dynotune.data import ingest

    rows = [ROWS[i % 4] for i in range(40)] + ROWS[4:]
    data = write(tmp_path / "data.jsonl", rows)
    plain = load(data, token_cache="off")
    monkeypatch.setattr(ingest, "CHUNK_ROWS", 10)
    writes = 0
    real = os.write

    def full(handle: int, data: Any) -> int:
        nonlocal writes
        writes += 1
        if writes == fails_at:
            return real(handle, bytes(data)[: len(data) // 2])  # as a disk does that has some room left
        if writes > fails_at:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        loaded = load(data)
    assert "No space left on device" in loaded.store
    assert loaded.store.endswith("tokenised in memory")
    assert same(loaded, plain)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != obtain.LOCK]


def test_a_source_that_changes_while_it_is_read_is_not_kept(tmp_path: Path, cache: Path) -> None:
    data = write(tmp_path / "data.jsonl")

    tokenizer = made_tokenizer()
    from dynotune.data import chunk

    with pytest.MonkeyPatch.context() as patch:
        real = chunk.ChunkEncoder.encode

        def meddle(self: Any, rows: Any) -> Any:
            os.utime(data)
            return real(self, rows)

        patch.setattr(chunk.ChunkEncoder, "encode", meddle)
        loaded = load(data, tokenizer)
    assert "changed while it was read; tokenised in memory" in loaded.store
    assert same(loaded, load(data, token_cache="off"))
    assert not list(cache.rglob(MANIFEST))


def test_rebuild_builds_and_says_so(tmp_path: Path, cache: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    assert load(data, rebuild=True).store.startswith("built: asked for by --rebuild")
    assert the_store(cache)
    assert load(data, verify=True).store.startswith("hit")


def test_a_store_is_mapped_or_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    assert isinstance(load(data).examples.ids.base, np.memmap)
    read = load(data, load_in_memory=True)
    assert not isinstance(read.examples.ids.base, np.memmap)
    assert read.store.endswith(", read into memory")
    monkeypatch.setattr(obtain, "slow_mount", lambda path: "nfs4, a network file system")
    slow = load(data)
    assert slow.store.endswith("read into memory (the store lies on nfs4, a network file system)")
    assert isinstance(load(data, load_in_memory=False).examples.ids.base, np.memmap)


def test_writing_to_mapped_tokens_changes_no_file(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl")
    load(data)
    hit = load(data)
    hit.examples.ids[:] = 0
    assert load(data).store.startswith("hit")


def test_files_are_the_users_alone(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "data.jsonl"))
    store = the_store(cache)
    assert store.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o077 for path in store.iterdir()} == {0}


def test_an_error_at_a_bad_row_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    from dynotune.errors import DataError

    data = write(tmp_path / "data.jsonl")
    with pytest.raises(DataError, match="on_bad_row: skip"):
        load(data, on_bad_row="error")
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != obtain.LOCK]
    assert not [path for path in cache.glob("*/*") if path.is_dir()]


def test_names_that_a_manifest_brings_do_not_reach_the_terminal_raw() -> None:
    from dynotune.data.store.fingerprint import in_words

    said = in_words(["tokenizer", "\x1b]0;title\x07" + "x" * 500])
    assert "\x1b" not in said
    assert "\x07" not in said
    assert len(said) < 200
