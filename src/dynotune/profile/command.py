"""`dynotune profile`: observe, analyse, keep. Whose run it is makes no difference behind the record."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError, TrainingError
from dynotune.measure.calibration import ceilings_of
from dynotune.model.product_settings import under
from dynotune.parallel.launch import must_be_launched, refuse_missing_gpus, run_processes
from dynotune.profile.analysis.analyse import analyse
from dynotune.profile.analysis.findings import Findings
from dynotune.profile.observing.own import Asked, observe
from dynotune.profile.records.record import Record
from dynotune.profile.records.record_file import read_record
from dynotune.profile.showing.keep import keep
from dynotune.say import sayer

SNAPSHOT = "memory.pickle"
"""Name of the snapshot of memory in the profile's folder."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked, as it was typed."""

    named: str
    """Of the folder."""

    steps: int = 20
    out: Path | None = None
    snapshot: bool = False
    anew: bool = False
    """Measure the device's ceilings again."""

    warm_up: int | None = None
    """Steps of it; None: by rule."""


def profile_config(
    config: WholeConfig, path: Path | None, flags: Sequence[str], options: Options, console: Console
) -> Record:
    """Observe a run of ours. path, flags: of the configuration, for the commands that measure remedies.

    Raises what the run raises, and `ConfigError` for an impossible number of steps.
    """
    if options.steps < 1 or (1 if options.warm_up is None else options.warm_up) < 1:
        raise ConfigError("`--steps` and `--warm_up` are at least 1.")
    method = config.method.command
    words = ["dynotune", "bench", *(["--method", method] if method != "sft" else [])]
    words += [*(["--config", str(path)] if path else []), *flags]
    measuring = f"{shlex.join(words)} --set {{change}}"
    snapshot = snapshot_of(options) if not config.use_cpu else None
    asked = Asked(options.steps, measuring, snapshot, options.anew, options.warm_up)
    if not must_be_launched(config):
        return observe(config, asked, console)
    count = config.gpus or 1
    refuse_missing_gpus(config, count)
    with TemporaryDirectory(prefix="dynotune-profile-") as folder:
        written, record = Path(folder) / "config.yaml", Path(folder) / "record.json.gz"
        written.write_text(config.to_yaml(), encoding="utf-8")
        told = {
            "steps": asked.steps,
            "measuring": measuring,
            "snapshot": str(snapshot or ""),
            "anew": options.anew,
            "warm_up": asked.warm_up,
        }
        command = ["-m", "dynotune.profile.observing.process", str(written), method, json.dumps(told), str(record)]
        code = run_processes(command, count, Path(folder), sayer(console))
        if code or not record.is_file():
            raise TrainingError(f"the run that was profiled ended with exit code {code}; what it printed says why.")
        return read_record(record)


def finish(record: Record, options: Options, say: Callable[[str], None]) -> tuple[Findings, list[str]]:
    """Measure the ceilings where the record has none and it is of this machine, analyse, keep. Returns paths of files."""
    import torch

    from dynotune.speedups.machine import machine_of

    device = torch.device(record.environment.device)
    if not record.ceilings.matmul and (device.type != "cuda" or torch.cuda.is_available()):
        machine = machine_of(device)
        if record.environment.machine.get("device") in (None, machine.device):
            say("measuring what this device can do")
            with under(device, record.environment.threads, record.environment.tf32):
                record = replace(record, ceilings=ceilings_of(device, machine.key, anew=options.anew))
    findings = analyse(record)
    files = keep(record, findings, folder_of(options))
    snapshot = folder_of(options) / SNAPSHOT
    if options.snapshot and not snapshot.is_file():
        why = "a run on a CPU has none" if record.environment.device != "cuda" else "the script's Python wrote none"
        say(f"no snapshot of memory was written: {why}")
    return findings, [*files, *([str(snapshot)] if snapshot.is_file() else [])]


def folder_of(options: Options) -> Path:
    """Where it is kept: `--out`, or a folder in `profiles/` by the second and the name."""
    if options.out is not None:
        return options.out
    words = re.sub(r"[^a-z0-9]+", "-", options.named.lower()).strip("-")[:40] or "profile"
    return Path("profiles") / f"{_STARTED:%Y%m%d-%H%M%S}-{words}"


_STARTED = datetime.now(UTC)


def snapshot_of(options: Options) -> Path | None:
    """Its file, in a folder that is there; None where none was asked for. Raises `ConfigError` where there can be none."""
    if not options.snapshot:
        return None
    folder = folder_of(options)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. Name another folder with `--out`.") from error
    return folder / SNAPSHOT
