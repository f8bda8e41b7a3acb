"""From runs of commands to a result like that of any other bench."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.foreign.measure import Command, Measured, in_a_line
from dynotune.bench.foreign.work import differences, notes, why_other_work
from dynotune.bench.judging import expect
from dynotune.bench.judging.comparison import caveat_of_noise, comparison, noise_of, note_of_end
from dynotune.bench.judging.judged import judged
from dynotune.config.secrets import masked, without_secret_words
from dynotune.measure.words import DEFINITIONS
from dynotune.results.result import Arm, Comparison, Memory, Result, Tier

WORK = 60
"""Characters of a command by which a history is kept."""


def conclude(
    found: Measured,
    targets: Sequence[expect.Target],
    *,
    machine: Mapping[str, Any],
    commit: str | None,
    said: Sequence[str] = (),
) -> Result:
    """targets: of `--expect`. machine: of the device. commit: of the project in which it ran. said: notes before others."""
    asked = found.asked
    memory = {name: _memory(found, name) for name in found.peaks}
    blocks = [*found.counted(found.names[0]).values()]
    result = Result(
        definitions=DEFINITIONS,
        name=asked.out.name,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kind=asked.kind,
        command=asked.command,
        commit=commit,
        operating_point=f"{_point(asked.commands)} · {found.devices}x {machine['device']}",
        machine=dict(machine),
        devices=found.devices,
        work=in_a_line(asked.commands[0].words)[:WORK],
        tier=Tier.FRESH,
        why_tier="commands are run whole",
        seed=asked.seed,
        steps_a_block=blocks[0].steps if blocks else 0,
        schedule=tuple(block.arm for block in found.blocks),
        noise=noise_of(found.noise),
        noise_caveat=caveat_of_noise(found, asked.rules.noise_pairs),
        arms=tuple(_arm(found, one, memory.get(one.name)) for one in asked.commands),
        comparisons=tuple(_comparison(found, pairing, memory) for pairing in asked.pairings),
        differences=tuple(differences(found)),
        notes=(*said, *notes(found), *found.notes, *note_of_end(found)),
        sentence="",
        gpu_seconds=found.spent,
        budget_seconds=asked.rules.budget_seconds,
        unfinished=found.unfinished,
    )
    return judged(result, targets)


def _comparison(found: Measured, pairing: Pairing, memory: Mapping[str, Memory]) -> Comparison:
    why = found.failed.get(pairing.arm) or found.failed.get(pairing.against) or ""
    if not why and not found.asked.other_work:
        why = why_other_work(found, pairing.arm, pairing.against)
    no_floor = caveat_of_noise(found, found.asked.rules.noise_pairs)
    return comparison(
        found, pairing, found.noise, found.asked.seed, not_comparable=why, no_floor=no_floor, memory=memory
    )


def _arm(found: Measured, one: Command, memory: Memory | None) -> Arm:
    first = found.asked.commands[0].facts
    facts = {key: _public(value) for key, value in one.facts.items()}
    return Arm(
        name=one.name,
        settings={key: value for key, value in facts.items() if one.facts[key] != first.get(key)},
        config={"command": _public(one.words), **facts},
        failed=found.failed.get(one.name),
        blocks=tuple(block for block in found.blocks if block.arm == one.name),
        memory=memory,
        gpu_seconds=found.held.get(one.name, 0.0) * found.devices_of.get(one.name, 1),
        final_loss=(loss := found.last_loss(one.name)),
        final_loss_of="" if loss is None else "the end of its last run",
    )


def _memory(found: Measured, name: str) -> Memory:
    tokens = found.first[name][0].tokens if name in found.first else 0
    return Memory(tokens=tokens, allocated=found.peaks[name])


def _point(commands: Sequence[Command]) -> str:
    return " :: ".join(dict.fromkeys(in_a_line(one.words) for one in commands))


def _public(value: str | Sequence[str]) -> str | list[str]:
    return masked(value) if isinstance(value, str) else [masked(word) for word in without_secret_words(value)]
