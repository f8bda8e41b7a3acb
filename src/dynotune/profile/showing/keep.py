"""Where a profile goes: files that people send each other, beside the traces for their viewers."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dynotune.errors import ConfigError
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import write_record
from dynotune.profile.showing.markdown import markdown
from dynotune.profile.showing.page import page
from dynotune.profile.showing.perfetto import write_trace

FORMAT = 1
"""Number of the format of `profile.json`."""


def keep(record: Record, findings: Findings, folder: Path) -> list[str]:
    """Write `profile.json`, `.md`, `.html`, `record.json.gz`, and `trace.json.gz` where steps were traced. Returns paths.

    Raises `ConfigError` where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "profile.json").write_text(json.dumps(as_json(record, findings), indent=1) + "\n", encoding="utf-8")
        (folder / "profile.md").write_text(markdown(findings), encoding="utf-8")
        (folder / "profile.html").write_text(page(findings), encoding="utf-8", errors="replace")
        write_record(record, folder / "record.json.gz")
        names = ["profile.html", "profile.md", "profile.json", "record.json.gz"]
        if record.traced:
            write_trace(record, folder / "trace.json.gz")
            names.append("trace.json.gz")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. Name another folder with `--out`.") from error
    return [str(folder / name) for name in names]


def as_json(record: Record, findings: Findings) -> dict[str, Any]:
    """Plain values: the findings, and what was timed. Infinite ceilings are null."""
    told = asdict(findings)
    for one in (*told["remedies"], *(finding["remedy"] for finding in told["found"] if finding["remedy"])):
        one["ceiling"] = None if one["ceiling"] == float("inf") else one["ceiling"]
    told["clean"] = findings.clean
    return {
        "format": FORMAT,
        "when": record.when,
        "trainer": record.trainer,
        "method": record.method,
        "findings": told,
        "steps": [asdict(one) for one in record.timed],
        "environment": {**asdict(record.environment), "machine": dict(record.environment.machine)},
        "model": {**asdict(record.model), "device_map": dict(record.model.device_map)},
        "memory": asdict(record.memory),
        "ceilings": {**asdict(record.ceilings), "matmul": dict(record.ceilings.matmul)},
        "warm_up": asdict(record.warm_up),
        "speedups": [asdict(one) for one in record.speedups],
    }
