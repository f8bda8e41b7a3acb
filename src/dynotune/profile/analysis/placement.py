"""Where things lie and in what precision they ran, in lines; and what this profile cannot tell."""

from collections import Counter

from dynotune.measure.kernel_classes import Work
from dynotune.measure.periods import LEAST_CYCLES
from dynotune.mounts import slow
from dynotune.profile.analysis.breakdown import Breakdown
from dynotune.profile.analysis.cycles import longest_period
from dynotune.profile.records.precision import product_flops
from dynotune.profile.records.record import Record

LONG_PERIOD = 50
"""Steps of a cycle, up to which it is said that too few were timed to see it."""

IN_EVALUATION = (
    "trains in evaluation mode, in which `from_pretrained` returns a model: no dropout and no gradient checkpointing"
    " before the script calls `model.train()`"
)


def placement(record: Record) -> tuple[str, ...]:
    """A line each: weights, products, splits, files, threads."""
    model, environment = record.model, record.environment
    lines = []
    groups = Counter[tuple[str, str, bool]]()
    for one in model.weights:
        groups[one.device, one.dtype, one.trained] += one.parameters
    if groups:
        parts = [
            f"{n:,} {dtype} on {device}{' (trained)' if trained else ''}"
            for (device, dtype, trained), n in groups.most_common(6)
        ]
        lines.append(f"weights: {'; '.join(parts)}" + (f"; {model.quantised}" if model.quantised else ""))
    if model.evaluation_mode:
        lines.append(IN_EVALUATION)
    flops = product_flops(record)
    if total := sum(flops.values()):
        ran = ", ".join(
            f"{100 * n / total:.0f} % {name or 'other'}" for name, n in sorted(flops.items(), key=lambda x: -x[1])
        )
        asked = f" (asked: {model.asked_precision})" if model.asked_precision else ""
        lines.append(f"matrix products ran in: {ran} of their FLOPs{asked}")
    if model.attention:
        again = "; layers are computed again in the backward pass" if model.checkpointing else ""
        lines.append(f"attention: {model.attention}{again}")
    if len(set(model.device_map.values())) > 1:
        devices = Counter(model.device_map.values())
        lines.append("device_map: " + ", ".join(f"{n} modules on {device}" for device, n in devices.most_common()))
    slowly = {what: f"{kind}, {why}" for what, kind in environment.file_systems.items() if (why := slow(kind))}
    if slowly:
        lines.append("slow files: " + "; ".join(f"{what} on {kind}" for what, kind in slowly.items()))
    elif environment.file_systems:
        lines.append("files: " + ", ".join(f"{what} on {kind}" for what, kind in environment.file_systems.items()))
    host = [_counted(environment.threads, "thread", " of PyTorch")] if environment.threads is not None else []
    host += [f"{environment.cores} cores"] if environment.cores is not None else []
    if environment.loader_workers is not None:
        ours = record.trainer == "dynotune"  # a thread of ours makes batches from the token store, or none does
        ahead = "batches made ahead by a thread" if environment.loader_workers else "no batches made ahead"
        host += [ahead if ours else _counted(environment.loader_workers, "loader worker")]
    if host:
        lines.append("host: " + ", ".join((*host, *environment.variables)))
    return tuple(lines)


def cannot_know(record: Record, breakdown: Breakdown | None) -> tuple[str, ...]:
    """What was not observed, and why."""
    lines = list(record.notes)
    if breakdown is None:
        lines.append("no step was traced: classes of time, floors and precision are not known")
    elif not breakdown.on_device:
        why = "this is a CPU" if record.environment.device == "cpu" else "the trace holds no kernels"
        lines.append(
            f"{why}: times are the host's operators under a profiler that slows them; idle time, hidden copies and"
            " communication, and what a GPU would wait for cannot be told"
        )
    if not record.ceilings.matmul:
        lines.append("the device's ceilings were not measured: no floors")
    elif breakdown is not None:
        missing = [str(row.work) for row in breakdown.rows if row.floor is None and row.share >= 0.02]
        if missing:
            lines.append(f"no floor is known for: {', '.join(missing)}")
        beaten = [str(row.work) for row in breakdown.rows if row.beaten]
        if beaten:
            lines.append(
                f"these took less time than their floors, which were measured under other settings: {', '.join(beaten)}"
            )
    if breakdown is not None and breakdown.share(Work.OTHER) >= 0.02:
        lines.append(f"{100 * breakdown.share(Work.OTHER):.0f} % of the step ran in kernels that no rule knows")
    if (longest := longest_period(record)) < LONG_PERIOD:
        few = f"cycles of more than {longest} steps" if longest else "any cycle"
        lines.append(
            f"{len(record.timed)} steps were timed, too few to see {few}: `--steps {LEAST_CYCLES * LONG_PERIOD}` sees what"
            f" comes back every {LONG_PERIOD}"
        )
    if any(one.real_tokens is None for one in record.timed):
        lines.append("real tokens of the steps are not known: no tokens a second, and no fill")
    return tuple(lines)


def _counted(number: int, what: str, more: str = "") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}{more}"
