"""A data set's tokens: from the store, or made and put there, or made in memory; and which of these it was."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dynotune.config.whole import WholeConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.account.quarantine import Quarantine
from dynotune.data.chunk import Chunk, RowEncoder
from dynotune.data.ingest import Account, Loaded, Memory, chunks, take_chunks
from dynotune.data.opening import Stream
from dynotune.data.sources.contents import Contents, FileState
from dynotune.data.store.account import account_of, account_told
from dynotune.data.store.describe import about_rows
from dynotune.data.store.fingerprint import KEYS, differing, in_words, parts_of
from dynotune.data.store.layout import LABELS, DamagedError, Manifest
from dynotune.data.store.location import cache_folder
from dynotune.data.store.prune import LOCK, is_building, remove, stale_buildings
from dynotune.data.store.read import append_quarantine, checked_whole, open_store
from dynotune.data.store.write import StoreWriter
from dynotune.data.tokens.encode import Encoder
from dynotune.data.workers.encode import encode_chunks
from dynotune.mounts import slow_mount
from dynotune.printable import printable

USED = "used"
"""An empty file in a store whose time says when it was last taken."""

WAIT = 1.0
"""Seconds after which it is said that another process is waited for."""


@dataclass
class Obtaining:
    """One data set on its way. `say` gets what should be known at once."""

    stream: Stream
    config: WholeConfig
    encoder: RowEncoder
    quarantine: Path | None
    ledger: Ledger
    say: Callable[[str], None] = lambda text: None
    rebuild: bool = False
    verify: bool = False
    _parts: dict[str, str] = field(default_factory=dict)

    def load(self) -> Loaded:
        """The data set. Raises `DataError` for its rows, as loading them in memory would."""
        if self.config.token_cache == "off":  # noqa: S105  (no secret: it is the key's value)
            return self._in_memory("off (`token_cache: off`)")
        if not isinstance(self.encoder, Encoder):
            return self._in_memory(f"not used: {type(self.encoder).__name__} cannot be told from another encoder")
        contents = self.stream.contents()
        if contents.unknown:
            return self._in_memory(f"not used: {contents.unknown}")
        try:
            _ = contents.states
        except OSError as error:
            return self._in_memory(f"not used: {printable(str(error))}")
        settings = self._settings()
        self._parts = parts_of(settings, self.encoder.tokenizer, self.stream.asked)
        folder = cache_folder(self.config.token_cache_dir) / _folder_name(self.stream)
        if not self.rebuild:
            found = self._find(folder, contents)
            if isinstance(found, Loaded):
                return found
        try:
            with self._alone(folder) as locked:
                # Another process may have built it while this one waited.
                why: Loaded | str = (
                    self._find(folder, contents) if not self.rebuild else "built: asked for by --rebuild"
                )
                return why if isinstance(why, Loaded) else self._build(folder, contents, why, locked)
        except _UnwritableError as error:
            return self._in_memory(f"not used: {error}")

    # Taking one that is there

    def _find(self, folder: Path, contents: Contents) -> Loaded | str:
        """The data set from its store, or why there is none to take."""
        nearest: tuple[int, float, str] | None = None
        damaged = ""
        for store in _stores(folder):
            try:
                manifest = Manifest.read(store)
                known = [FileState(**state) for state in manifest.contents]
                parts = differing(manifest.parts, self._parts)
                changed = contents.difference(known, manifest.contents_text) if not parts else None
                if not parts and changed is None:
                    return self._take(store, manifest, contents, known)
            except (DamagedError, TypeError) as error:
                damaged = f"built again: the store was damaged ({error})"
                continue
            except OSError as error:
                damaged = f"built again: the store could not be read ({error.strerror or error})"
                continue
            why = f"{in_words(parts)} changed" if parts else f"the data changed ({changed})"
            distance = len(parts) or 1, -store.stat().st_mtime, f"built because {why}"
            nearest = min(nearest or distance, distance)
        return damaged or (nearest[2] if nearest else "built: first time")

    def _take(self, store: Path, manifest: Manifest, contents: Contents, known: list[FileState]) -> Loaded:
        in_memory, slow = self._reads_into_memory(store)
        began = time.perf_counter()
        examples = open_store(store, manifest, in_memory=in_memory, verify=self.verify)
        account = account_of(manifest)
        if self.quarantine is not None:
            append_quarantine(store, self.quarantine)
        self._remember(account)
        seconds = time.perf_counter() - began
        _touch(store, manifest, contents, known)
        how = f", read into memory ({slow})" if slow else ", read into memory" if in_memory else ""
        unchecked = (
            "" if checked_whole(manifest) or self.verify else "; its tokens were not checked (`prepare --verify` does)"
        )
        place = f"{printable(str(store))}{_of_whom(store)}"
        rows = f"{examples.rows:,} {'pairs' if manifest.per_example > 1 else 'rows'}"
        sentence = f"hit: {rows} in {seconds:.2f} s from {place}{how}{unchecked}"
        return Loaded(examples, account.ledger, account.format, manifest.statements, sentence, manifest.about)

    def _reads_into_memory(self, store: Path) -> tuple[bool, str]:
        if self.config.load_in_memory != "auto":
            return self.config.load_in_memory, ""
        slow = slow_mount(store)
        return slow is not None, f"the store lies on {slow}" if slow else ""

    def _remember(self, account: Account) -> None:
        """Let the encoder report what it would, had it made these tokens."""
        assert isinstance(self.encoder, Encoder)
        self.encoder.notices.update(account.encoder_notices)
        if account.probed:
            _ = self.encoder.template_report

    # Making one

    def _build(self, folder: Path, contents: Contents, why: str, locked: bool) -> Loaded:
        stale_buildings(folder, locked=locked)
        quarantine = Quarantine(self.quarantine) if self.quarantine else None
        name = f".building-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            writer = StoreWriter(folder / name, quarantine, self.config.per_example)
        except OSError as error:
            raise _UnwritableError(f"{printable(str(folder))} cannot be written ({error.strerror or error})") from error
        try:
            account = self._tokenise(writer)
            statements = self.stream.statements
            if writer.failure is not None:
                return self._kept_in_memory(writer, account, statements)
            about = {**about_rows(writer.lengths(), self.config.per_example), "made_from": self._made_from()}
            hashed = [state.__dict__ for state in contents.hashed]
            if (file := contents.changed_since()) is not None:
                writer.give_up(f"{file} changed while it was read")
                return self._kept_in_memory(writer, account, statements)
            manifest = Manifest(
                rows=writer.rows,
                tokens=writer.tokens,
                label_tokens=writer.label_tokens,
                labels_stored=(folder / name / LABELS).exists(),
                files=list(writer.table),
                parts=self._parts,
                contents=hashed,
                contents_text=contents.text,
                account=account_told(account),
                statements=statements,
                digest="",
                checksums={},
                about=about,
                per_example=self.config.per_example,
            )
            place = folder / _store_name(manifest)
            if place.exists() or place.is_symlink():
                remove(place)
            if not writer.finish(manifest, place):
                return self._kept_in_memory(writer, account, statements)
        except BaseException:
            writer.discard()
            raise
        in_memory, slow = self._reads_into_memory(place)
        examples = open_store(place, manifest, in_memory=in_memory)
        how = f" (read into memory: {slow})" if slow else ""
        return Loaded(
            examples, account.ledger, account.format, statements, f"{why}; kept in {printable(str(place))}{how}", about
        )

    def _made_from(self) -> dict[str, Any]:
        """The fingerprint's parts as far as they can be read, for people."""
        tokenizer, settings = self.encoder.tokenizer, self._settings()
        return {
            "data": self.stream.identity,
            **self.stream.asked,
            **{key: getattr(settings, key) for key in KEYS},
            "tokenizer": [type(tokenizer).__name__, str(tokenizer.name_or_path)],
            "chat_template": tokenizer.chat_template,
        }

    def _kept_in_memory(self, writer: StoreWriter, account: Account, statements: list[str]) -> Loaded:
        writer.discard()
        assert writer.failure is not None
        sentence = f"not kept in {printable(str(writer.folder.parent))}: {writer.failure}; tokenised in memory"
        return Loaded(writer.memory.examples(), account.ledger, account.format, statements, sentence)

    def _in_memory(self, why: str) -> Loaded:
        memory = Memory(Quarantine(self.quarantine) if self.quarantine else None, self.config.per_example)
        account = self._tokenise(memory)
        sentence = f"{why}; tokenised in memory"
        return Loaded(memory.examples(), account.ledger, account.format, self.stream.statements, sentence)

    def _tokenise(self, sink: StoreWriter | Memory) -> Account:
        settings = self._settings()
        before = self.encoder.notices.copy()
        encoded: Iterator[Chunk] = encode_chunks(chunks(self.stream.rows, settings), settings, self.encoder, self.say)
        account = take_chunks(
            encoded,
            sink,
            self.ledger,
            self.encoder,
            self.stream.name,
            settings,
            show_progress=not self.config.disable_tqdm,
        )
        # Some were noticed by this process' encoder and some by those of others.
        self.encoder.notices.clear()
        self.encoder.notices.update(before + account.encoder_notices)
        if account.probed and isinstance(self.encoder, Encoder):
            _ = self.encoder.template_report
        return account

    def _settings(self) -> WholeConfig:
        return self.config.model_copy(update={"columns": {}}) if self.stream.columns_applied else self.config

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[bool]:
        """Among the processes that build here. Yields False on a file system without locks: there two may build the
        same, and one of them is kept."""
        lock = FileLock(folder / LOCK, mode=0o600)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=WAIT)
            except Timeout:
                self.say(f"{self.stream.name}: waiting for another process that prepares this data")
                lock.acquire()
        except NotImplementedError:
            yield False
            return
        except OSError as error:
            raise _UnwritableError(f"{printable(str(folder))} cannot be written ({error.strerror or error})") from error
        try:
            yield True
        finally:
            lock.release()


class _UnwritableError(Exception):
    """Nothing can be kept. The message says where and why."""


def _stores(folder: Path) -> list[Path]:
    """Finished stores, the newest first."""
    try:
        found = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and not is_building(path)]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _folder_name(stream: Stream) -> str:
    named = blake2b(json.dumps(stream.identity).encode(), digest_size=8).hexdigest()
    shown = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in Path(stream.name).name)
    return f"{shown[:40].strip('-') or 'data'}-{named}"


def _store_name(manifest: Manifest) -> str:
    hashes = [state["hash"] for state in manifest.contents]
    told = json.dumps([manifest.parts, hashes, manifest.contents_text], sort_keys=True)
    return blake2b(told.encode(), digest_size=10).hexdigest()


def _of_whom(store: Path) -> str:
    """Whoever owns a store decides what is trained on."""
    owner = store.stat().st_uid
    return f", which belongs to another user (number {owner})" if hasattr(os, "getuid") and owner != os.getuid() else ""


def _touch(store: Path, manifest: Manifest, contents: Contents, known: list[FileState]) -> None:
    """Note that the store was taken, and the files' new state where they were touched and hold what they held."""
    try:
        if (store / USED).is_symlink():  # touching it would make or change a file elsewhere
            (store / USED).unlink()
        (store / USED).touch(mode=0o600)
        if not all(then.is_still(state) for then, state in zip(known, contents.states, strict=True)):
            hashes = {state.path: state.hash for state in known}
            manifest.contents = [{**state.__dict__, "hash": hashes[state.path]} for state in contents.states]
            manifest.replace(store)
    except OSError:
        pass  # a cache that others own can be read all the same; the files are then hashed again next time
