"""Where a result goes: into the history, and as files that people send each other."""

from pathlib import Path

from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.page import bench_page
from dynotune.results.history import History, write_result
from dynotune.results.result import Result


def keep(result: Result, folder: Path) -> tuple[Result, list[str]]:
    """Write `bench.json`, `bench.md` and `bench.html` into `folder`, and the result into the history.

    Returns it under the name that the history gave it, and the paths of the files.
    """
    result, kept = History().keep(result)
    files = [folder / name for name in ("bench.json", "bench.md", "bench.html")]
    write_result(result, files[0])
    files[1].write_text(markdown(result, [str(files[0])]), encoding="utf-8")
    files[2].write_text(bench_page(result), encoding="utf-8")
    return result, [str(path) for path in files] + ([str(kept)] if kept else [])
