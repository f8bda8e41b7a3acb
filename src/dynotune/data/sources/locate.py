"""What a data set's name stands for: a file, a folder, a glob of shards, a hub id, or an object from Python."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.data.read.arrow_tables import UNREADABLE, batch_rows, table_record
from dynotune.data.read.readers import data_suffix, read_rows
from dynotune.data.rows import BadRow, Found, Place, Record
from dynotune.data.sources.contents import Contents, rows_text
from dynotune.data.sources.paths import entries_below, files_matching, kind_of, nearest
from dynotune.data.sources.splits import group_by_split
from dynotune.errors import DataError
from dynotune.printable import printable

if TYPE_CHECKING:
    import datasets

_SHOWN = 5
_BATCH_ROWS = 256
_METADATA = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
_BUILDERS = ("json", "csv", "parquet", "arrow")
"""`path: json` with `data_files` is how TRL's configurations name local files."""


@dataclass
class Source(ABC):
    """Rows that can be read more than once. `statement` is what was found, for people."""

    name: str
    statement: str

    def __post_init__(self) -> None:
        # File names and a hub's words go to terminals, logs and UTF-8 files.
        self.name, self.statement = printable(self.name), printable(self.statement)

    @abstractmethod
    def __iter__(self) -> Iterator[Found]:
        """The rows, from the first."""

    @abstractmethod
    def contents(self) -> Contents:
        """What tells whether the rows are those of an earlier time."""

    def count(self) -> int:
        """Number of rows, good and bad."""
        return sum(not (isinstance(row, BadRow) and row.place.line is None) for row in self)


@dataclass
class FileSource(Source):
    files: list[Path]

    def __iter__(self) -> Iterator[Found]:
        for file in self.files:
            yield from read_rows(file)

    def contents(self) -> Contents:
        return Contents(self.files)


@dataclass
class TableSource(Source):
    """A `datasets.Dataset`."""

    table: datasets.Dataset

    def __iter__(self) -> Iterator[Found]:
        for start in range(0, len(self.table), _BATCH_ROWS):
            end = min(start + _BATCH_ROWS, len(self.table))
            try:
                batch = self.table[start:end]
            except UNREADABLE:
                if self.table.format["type"] is not None:
                    raise  # the user's own transform failed
                # As Arrow, where a cell that cannot be converted is told from its neighbours.
                yield from batch_rows(self.table.with_format("arrow")[start:end], self.name, start)
                continue
            for line, cells in enumerate(zip(*batch.values(), strict=True), start=start + 1):
                yield table_record(dict(zip(batch, cells, strict=True)), Place(self.name, line))

    def contents(self) -> Contents:
        if self.table.format["type"] == "custom":
            return Contents(
                unknown=f"{self.name} has a transform that is applied when rows are read, and may differ then"
            )
        # The fingerprint follows every map and filter; the files behind it may be replaced without its knowledge.
        files = [Path(entry["filename"]) for entry in self.table.cache_files]
        return Contents(files, f"{self.table._fingerprint} {self.table.format} {len(self.table)}")

    def count(self) -> int:
        return len(self.table)


@dataclass
class ObjectSource(Source):
    """Dictionaries from Python."""

    rows: Any

    def __iter__(self) -> Iterator[Found]:
        # `rows` may know only `__getitem__` and `__len__`, as PyTorch's data sets do.
        indexed = self.rows if hasattr(self.rows, "__iter__") else (self.rows[i] for i in range(len(self.rows)))
        for line, values in enumerate(indexed, start=1):
            place = Place(self.name, line)
            if isinstance(values, Mapping):
                yield Record(place, values)
            else:
                yield BadRow(
                    place, "row-is-not-a-mapping", f"a row must be a dict, and this is {type(values).__name__}"
                )

    def contents(self) -> Contents:
        return rows_text(self.rows, self.name)


@dataclass(frozen=True)
class Location:
    """Where a data set is, in TRL's terms."""

    path: str
    name: str | None = None
    data_dir: str | None = None
    data_files: str | list[str] | dict[str, str] | None = None


def open_splits(location: Location) -> dict[str, Source]:
    """The splits of a data set by name. One file, or files whose names tell no splits apart, are the split `train`.

    Raises `DataError` where nothing is found, and says what was tried.
    """
    if not location.path.strip():
        raise DataError(
            "The data set's name is empty. Give a file, folder, glob or hub id (`.` is the current folder)."
        )
    path = Path(location.path).expanduser()
    kind = kind_of(path)
    if kind == "file":
        _no_hub_keys(location)
        return {"train": FileSource(str(path), f"file {path}", [path])}
    if kind == "folder":
        return _open_folder(location, path)
    if location.path in _BUILDERS:
        return _open_files(location)
    if has_magic(location.path):
        return _open_glob(location.path)
    if path.suffix or path.is_absolute() or location.path.startswith((".", "~")) or location.path.count("/") > 1:
        raise DataError(f"{printable(location.path)}: no such file or folder.{nearest(path)}")
    return _open_hub(location)


def open_object(rows: Any, name: str) -> Source:
    """Rows that a Python user passed: a `datasets.Dataset`, an `IterableDataset`, or a sequence of dicts."""
    library = sys.modules.get("datasets")
    if library is not None:
        if isinstance(rows, library.Dataset):
            return TableSource(name, f"{name}: a Dataset of {len(rows):,} rows", rows)
        if isinstance(rows, library.IterableDataset):
            return ObjectSource(name, f"{name}: an IterableDataset, read to its end before training", rows)
        if isinstance(rows, library.DatasetDict | library.IterableDatasetDict):
            splits = ", ".join(rows)
            raise DataError(f"{name}: this is a DatasetDict; pass one of its splits ({splits}), as in data['train'].")
    if isinstance(rows, Mapping | str | bytes) or not (
        isinstance(rows, Sequence) or (hasattr(rows, "__getitem__") and hasattr(rows, "__len__"))
    ):
        raise DataError(
            f"{name}: {type(rows).__name__} cannot be read as rows; pass a datasets.Dataset or a list of dicts, "
            "or give a file by `dataset_name`."
        )
    return ObjectSource(name, f"{name}: {type(rows).__name__} of {len(rows):,} rows", rows)


def _open_files(location: Location) -> dict[str, Source]:
    """`data_files` of a builder's name (`json`) or of a local folder."""
    given = location.data_files
    if given is None and location.data_dir is not None:
        return open_splits(Location(location.data_dir))
    if given is None:
        raise DataError(
            f"{printable(location.path)}: names a file type, so it needs `data_files` (or give the file as the path)."
        )
    base = Path() if location.path in _BUILDERS else Path(location.path).expanduser()
    if location.data_dir is not None:
        base /= location.data_dir
    by_split = given if isinstance(given, dict) else {"train": given}
    splits: dict[str, Source] = {}
    for split, patterns in by_split.items():
        files: list[Path] = []
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if not pattern.strip():
                raise DataError(f"{printable(location.path)}: `data_files` holds an empty name. Give a file or a glob.")
            files += _matches(str(base / Path(pattern).expanduser()))
        splits[split] = _files_source(f"{location.path}[{split}]", files)
    return splits


def _open_glob(pattern: str) -> dict[str, Source]:
    grouped, nameless = group_by_split(_matches(pattern))
    if len(grouped) < 2:
        # The pattern was chosen by the user: all it matches is wanted, even if the names all say `test`.
        return {"train": _files_source(pattern, _matches(pattern))}
    return {split: _files_source(pattern, files, nameless) for split, files in grouped.items()}


def _open_folder(location: Location, folder: Path) -> dict[str, Source]:
    if any(kind_of(folder / name) == "file" for name in ("dataset_dict.json", "state.json")):
        _no_hub_keys(location)
        return _open_saved(folder)
    if location.name is not None:
        raise DataError(
            f"{printable(location.path)}: `dataset_config`/`name: {location.name}` belongs to hub data sets, and "
            "this is a local folder. Name the folder or files inside it instead."
        )
    if location.data_files is not None:
        return _open_files(location)
    if location.data_dir is not None:
        return open_splits(Location(str(folder / location.data_dir)))
    files = sorted(
        file
        for file in entries_below(folder)
        if data_suffix(file)
        and file.name not in _METADATA
        and not _hidden(file.relative_to(folder))
        and kind_of(file) == "file"
    )
    if not files:
        raise DataError(
            f"{printable(str(folder))}: the folder holds no data files (jsonl, json, csv, parquet, arrow) and no "
            "saved data set."
        )
    grouped, nameless = group_by_split(files, folder)
    if not grouped:
        return {"train": _files_source(str(folder), files)}
    return {split: _files_source(str(folder), members, nameless) for split, members in grouped.items()}


def _open_saved(folder: Path) -> dict[str, Source]:
    from datasets import DatasetDict, load_from_disk

    try:
        found = load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{printable(str(folder))}: looks like a saved `datasets` folder and cannot be opened: {printable(str(error))}"
        ) from error
    splits = found if isinstance(found, DatasetDict) else {"train": found}
    return {
        split: TableSource(f"{folder}[{split}]", f"saved data set {folder}, split {split}: {len(table):,} rows", table)
        for split, table in splits.items()
    }


def _open_hub(location: Location) -> dict[str, Source]:
    import datasets
    from datasets.exceptions import DatasetsError

    options = {"name": location.name, "data_dir": location.data_dir, "data_files": location.data_files}
    try:
        # `datasets` 4 and later run no code that a repository brings, and refuse a repository that needs it.
        found = datasets.load_dataset(location.path, **options)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        path = Path(location.path)
        raise DataError(
            f"{printable(location.path)}: not found. Tried the local path {printable(str(path.absolute()))} (does not "
            f"exist) and the hub data set '{printable(location.path)}': {printable(str(error))}{nearest(path)}"
        ) from error
    assert isinstance(found, datasets.DatasetDict)
    return {
        split: TableSource(
            f"{location.path}[{split}]", f"hub {location.path}, split {split}: {len(table):,} rows", table
        )
        for split, table in found.items()
    }


def _files_source(name: str, files: list[Path], nameless: Sequence[Path] = ()) -> FileSource:
    shown = ", ".join(str(file) for file in files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
    statement = f"file {shown}" if len(files) == 1 else f"{len(files)} files in this order: {shown}"
    if nameless:
        statement += f"; left out, because no split is in their name: {', '.join(str(file) for file in nameless)}"
    return FileSource(name, statement, files)


def _matches(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    files = [path] if kind_of(path) == "file" else files_matching(pattern)
    if not files:
        raise DataError(f"{printable(pattern)}: no file matches.{nearest(path)}")
    return files


def _no_hub_keys(location: Location) -> None:
    for key in ("name", "data_dir", "data_files"):
        if (value := getattr(location, key)) is not None:
            shown = "dataset_config` (`name`)" if key == "name" else f"{key}`"
            raise DataError(
                f"{printable(location.path)}: `{shown} is {value!r}, which means nothing for this local data. Remove it."
            )


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)
