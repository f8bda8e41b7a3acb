"""Promises: pruning removes what it says and nothing else; slow mounts are known; the place follows key and variables."""

import gc
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from dynotune.data.store.layout import MANIFEST
from dynotune.data.store.location import cache_folder
from dynotune.data.store.prune import LOCK, prune
from dynotune.mounts import slow_mount
from tests.data.store.made import chat, load, write

DAY = 86_400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def stores(cache: Path) -> list[Path]:
    return sorted(path.parent for path in cache.rglob(MANIFEST))


def test_only_what_was_not_used_for_so_long_is_removed(tmp_path: Path, cache: Path) -> None:
    for name in ("old", "new"):
        load(write(tmp_path / f"{name}.jsonl", [chat("a", "b")]), load_in_memory=True)
    old, new = (next(path for path in stores(cache) if path.parent.name.startswith(name)) for name in ("old", "new"))
    load(tmp_path / "old.jsonl", load_in_memory=True)
    later = time.time() + 20 * DAY
    os.utime(new / MANIFEST, (later, later))
    done = prune(cache, 30, now=time.time() + 40 * DAY)
    assert [(one.path, one.why, one.removed) for one in done] == [(old, "not used for 40 days", True)]
    assert done[0].bytes > 100
    assert stores(cache) == [new]
    assert not old.parent.exists()
    assert load(tmp_path / "new.jsonl").store.startswith("hit")


def test_unfinished_and_damaged_ones_go_and_ones_in_use_or_just_begun_stay(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "data.jsonl", [chat("a", "b")]), load_in_memory=True)
    (store,) = stores(cache)
    left, begun = store.with_name(".building-1-old"), store.with_name(".building-2-new")
    for folder in (left, begun):
        folder.mkdir()
    held = load(tmp_path / "data.jsonl")
    assert held.store.startswith("hit")
    with FileLock(store.parent / LOCK):  # as a builder has it
        done = {one.path: one for one in prune(cache, 0)}
    assert [done[one].removed for one in (left, begun)] == [False, False]
    done = {one.path: one for one in prune(cache, 0)}
    assert [(done[one].why, done[one].removed) for one in (left, begun)] == [("never finished", True)] * 2
    assert "in use" in done[store].why
    assert not done[store].removed
    del held
    gc.collect()
    (store / MANIFEST).write_text("{")
    done = {one.path: one for one in prune(cache, 999)}
    assert done[store].removed
    assert done[store].why.startswith("damaged: ")


def test_what_is_no_store_stays_even_where_the_cache_is_a_home_folder(tmp_path: Path, cache: Path) -> None:
    load(write(tmp_path / "data.jsonl", [chat("a", "b")]), load_in_memory=True)
    (store,) = stores(cache)
    other_store = store.with_name("0" * 20)
    mine = [
        cache / "project" / "src" / "main.py",
        cache / "site" / "app" / MANIFEST,
        cache / "a-0123456789abcdef" / "work" / "notes",
        store.with_name(".building-of-my-own") / "plans",
        other_store / "precious",
    ]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    before = sorted(path for path in cache.rglob("*") if not path.is_relative_to(store))
    assert [one.path for one in prune(cache, 0) if one.removed] == [store]
    assert sorted(path for path in cache.rglob("*") if path.name != LOCK) == [p for p in before if p.name != LOCK]
    assert not (cache / "project" / LOCK).exists()


def test_links_lead_nowhere(tmp_path: Path, cache: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("x")
    load(write(tmp_path / "data.jsonl", [chat("a", "b")]), load_in_memory=True)
    (store,) = stores(cache)
    (store / "link").symlink_to(mine)
    (store.parent / "store").symlink_to(mine)
    (cache / "data-set").symlink_to(mine)
    prune(cache, 0)
    assert not store.exists()
    assert (mine / "precious").read_text() == "x"


def test_where_stores_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNOTUNE_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder(None) == Path("/home/me/.cache/dynotune/tokens")
    monkeypatch.setenv("XDG_CACHE_HOME", "/big")
    assert cache_folder(None) == Path("/big/dynotune/tokens")
    monkeypatch.setenv("DYNOTUNE_CACHE", "/mine")
    assert cache_folder(None) == Path("/mine/tokens")
    assert cache_folder("~/here") == Path("/home/me/here")


def test_slow_mounts_are_known_by_the_mount_that_a_path_lies_on(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    (tmp_path / "with space").mkdir()
    real = str(tmp_path.resolve())
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\n"
        f"server:/x {real} nfs4 rw 0 0\n"
        f"C: {real}/c 9p rw 0 0\n"
        f"/dev/sdb {real}/fast xfs rw 0 0\n"
        f"x {real}/with\\040space fuse.sshfs rw 0 0\n"
        f"x {real}/over nfs rw 0 0\n"
        f"x {real}/over ext4 rw 0 0\n"
    )
    assert slow_mount(Path("/"), mounts) is None
    assert slow_mount(tmp_path / "a" / "b", mounts) == "nfs4, a network file system"
    assert (slow_mount(tmp_path / "c", mounts) or "").startswith("9p, ")
    assert slow_mount(tmp_path / "fast" / "x", mounts) is None
    assert slow_mount(tmp_path / "fastother", mounts) == "nfs4, a network file system"
    assert slow_mount(tmp_path / "with space", mounts) == "fuse.sshfs, a file system in user space"
    assert slow_mount(tmp_path / "over", mounts) is None
    assert slow_mount(tmp_path, tmp_path / "absent") is None
