"""Rounds of blocks until intervals are narrow enough, whatever the arms are: configurations or other people's commands."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from dynotune.bench.asking.asked import Pairing
from dynotune.bench.asking.schedule import (
    Round,
    Rules,
    again,
    has_room_for_noise,
    is_settled,
    noise_to_come,
    rounds,
    rounds_to_come,
    stop,
)
from dynotune.bench.running.disturbed import (
    clocks_apart,
    disturbance,
    grown,
    growth,
    note_of_clocks,
    note_of_host,
    recompiled,
)
from dynotune.bench.running.guard import Guard
from dynotune.bench.running.stalled import is_repeat, notes_of_stalls, stalls
from dynotune.bench.running.tally import Tally
from dynotune.bench.statistics import half_width
from dynotune.bench.workers.hand import ArmFailedError
from dynotune.printable import printable
from dynotune.results.result import OUT_OF_MEMORY, Block

FEWEST = 2
"""Pairs that count, without which there is no interval. No cap is lower: whoever is ended before them by a budget has no
answer."""

Say = Callable[[str], None]
Seen = TypeVar("Seen", bound=Tally)


class Player(Protocol):
    """Takes the blocks."""

    def block(self, name: str, round_: Round) -> Block:
        """One block of an arm. Raises `ArmFailedError`."""

    def drop(self, name: str) -> None:
        """An arm failed: what is left of it is of no use any more."""

    @property
    def spent(self) -> float:
        """GPU seconds so far: for which devices were held, times devices."""


def play(
    tally: Tally,
    player: Player,
    names: Sequence[str],
    pairings: Sequence[Pairing],
    rules: Rules,
    seed: int,
    say: Say,
    between: Callable[[int], None] = lambda done: None,
    *,
    ladder: bool = False,
    led_anew: Callable[[], Sequence[Pairing]] | None = None,
) -> None:
    """Fill the tally. names: of the arms that can run. between: called behind each round but the last, with how many were
    run. ladder: as of `rounds`.

    A comparison whose interval is narrow enough needs no further blocks: an arm of which nobody else is in need rests, so
    that what is left of a budget goes to the others.

    led_anew: called where the first arm fails; gives the pairings without it. Unset, its failure ends the bench: raises
    `ArmFailedError`.
    """
    done, settled, of_noise = 0, set[Pairing](), 0
    for round_ in rounds(names, seed, rules, ladder=ladder) if len(names) > 1 else ():
        left = _left(tally, pairings)
        wanted = {name for one in left if one not in settled for name in (one.arm, one.against)}
        lead = tally.names[0]
        order = (lead, lead) if round_.of_noise else tuple(name for name in round_.arms if name in wanted)
        _round(tally, player, replace(round_, arms=order), say, first_may=led_anew is not None)
        _again_what_stood_still(tally, player, rules, say, first_may=led_anew is not None)
        if lead in tally.failed:
            assert led_anew is not None
            pairings, settled = led_anew(), set()
        left = _left(tally, pairings)
        done += not round_.of_noise
        of_noise += round_.of_noise
        if round_.of_noise:
            continue
        settled |= {one for one in left if is_settled(_width(tally, one), done, rules)}
        more = _seconds_of_more(tally, [one for one in left if one not in settled], done, rules)
        ends = [one in settled for one in left]
        tally.ended = stop(ends, done, rules, spent=player.spent, seconds_of_more=more)
        tally.by_budget = bool(tally.ended) and not stop(ends, done, rules)
        if tally.by_budget and left:
            tally.unfinished = _too_few(tally, left, done)
        if tally.ended or not left:
            break
        between(done)
    if tally.by_budget and not tally.unfinished:
        owed = range(of_noise, rules.noise_pairs)
        _owed_noise(tally, player, owed, rules, say, led_anew)


def _owed_noise(
    tally: Tally,
    player: Player,
    owed: Sequence[int],
    rules: Rules,
    say: Say,
    led_anew: Callable[[], Sequence[Pairing]] | None,
) -> None:
    """Rounds of noise that a budget left out, behind all others, as long as there is room. owed: their numbers."""
    for number in owed:
        lead = tally.names[0]
        if not has_room_for_noise(player.spent, 2 * tally.seconds_of([lead]), rules):
            return
        _round(tally, player, Round(number, (lead, lead), of_noise=True), say, first_may=led_anew is not None)
        if lead in tally.failed:
            assert led_anew is not None
            led_anew()


def _left(tally: Tally, pairings: Sequence[Pairing]) -> list[Pairing]:
    return [one for one in pairings if not {one.arm, one.against} & tally.failed.keys()]


def _too_few(tally: Tally, left: Sequence[Pairing], done: int) -> str:
    """Why rounds that the budget ended compare nothing, as the end of a sentence; empty where any two arms have pairs that
    do."""
    count = max(len(tally.pairs(one.arm, one.against)) for one in left)
    if count >= FEWEST:
        return ""
    if done < FEWEST:
        return f"the budget has no room for a second pair: {tally.ended}"
    void = next((f" ({block.void})" for block in reversed(tally.blocks) if block.void), "")
    counted = "1 counts" if count else "none count"
    return f"of {done} pairs {counted}{void}, and the budget has no room for more: {tally.ended}"


def _width(tally: Tally, one: Pairing) -> float:
    ratios = [*tally.log_ratios(one.arm, one.against).values()]
    return half_width(ratios) if len(ratios) >= 2 else math.inf


def _seconds_of_more(tally: Tally, open_: Sequence[Pairing], done: int, rules: Rules) -> float:
    """GPU seconds of the rounds up to the next look, by what blocks of each arm took so far."""
    running = {name for one in open_ for name in (one.arm, one.against)}
    noise = 2 * noise_to_come(done, rules) * tally.seconds_of(tally.names[:1])
    return rounds_to_come(done, rules) * tally.seconds_of(running) + noise


def or_failed(
    tally: Tally, drop: Callable[[str], None], name: str, what: Callable[[], Any], say: Say, *, first_may: bool = False
) -> Any:
    """What `what` gives; None where that arm failed, which is then known of it. The first one's failure ends the bench,
    unless `first_may`.

    drop: of `Player`.
    """
    try:
        return what()
    except ArmFailedError as error:
        if error.kind == "bug" or (name == tally.names[0] and not first_may):
            text = str(error).removeprefix(f"{name}: ")
            raise ArmFailedError(f"{name}: {text}", error.kind, error.log) from error
        tally.failed[name] = reason(error)
        drop(name)
        say(f"{name}: {tally.failed[name]}")
        return None


def reason(error: ArmFailedError) -> str:
    """Why an arm could not be measured, in a line that a terminal may show: it can be a foreign command's own."""
    first = printable(str(error).strip().splitlines()[0]) if str(error).strip() else "it ended without a word"
    if error.kind != "memory" or first.startswith(OUT_OF_MEMORY):
        return first
    return f"{OUT_OF_MEMORY}: {first}"


def noted(tally: Seen, guard: Guard) -> Seen:
    """What was seen up to now, with notes on clocks and host. `tally` itself is left alone: rounds to come say more, or no
    longer the same."""
    return replace(tally, notes=[*tally.notes, *_notes_of(tally, guard)])


def _notes_of(tally: Tally, guard: Guard) -> list[str]:
    """What the reader must know of clocks and host."""
    said = [*([guard.note] if guard.note else []), *notes_of_stalls(tally)]
    for first in dict.fromkeys(first for _, first in tally.apart):
        of_others = {arm: apart for (arm, other), apart in tally.apart.items() if other == first != arm}
        said += [note] if (note := note_of_clocks(first, of_others)) else []
    said += [note] if (note := note_of_host({name: [*tally.counted(name).values()] for name in tally.names})) else []
    return said


def _round(tally: Tally, player: Player, round_: Round, say: Say, first_may: bool = False) -> None:
    """One block of every arm; what is void runs again, once."""
    order, times = [name for name in round_.arms if name not in tally.failed], 0
    while order:
        times += 1
        made: list[Block] = []
        for name in order:
            before = player.spent
            what = partial(player.block, name, round_)
            block = or_failed(tally, player.drop, name, what, say, first_may=first_may)
            made += [block] if block else []
            if block and not round_.of_noise:
                tally.costs.setdefault(name, []).append(player.spent - before)
        made = _with_voids(tally, made, repeated=times > 1)
        if times == 1:
            made = _with_growth(made)
        tally.blocks += made
        for block in made:
            if block.void:
                say(f"{block.arm}: a block does not count: {block.void}")
        order = list(again(order, {block.arm for block in made if block.void}, times))


def _again_what_stood_still(tally: Tally, player: Player, rules: Rules, say: Say, first_may: bool = False) -> None:
    """Blocks several times above their arm's median run again, once, by themselves and on the same documents, as long as the
    budget has room for them. Of arms one by one: no other arm is looked at.

    Those of earlier rounds too: of the first one there was no median yet.
    """
    for name in tally.names:
        for one in [] if name in tally.failed else stalls(tally, name):
            block = tally.blocks[one.place]
            cost, before = tally.seconds_of([name]), player.spent
            if is_repeat(tally, one.place) or (rules.budget_seconds or math.inf) < before + cost:
                continue
            what = partial(player.block, name, Round(block.pair, (name,), of_noise=block.of_noise))
            repeated = or_failed(tally, player.drop, name, what, say, first_may=first_may)
            if repeated is None:
                break
            tally.blocks[one.place] = block.model_copy(update={"void": one.why})
            say(f"{name}: a block does not count: {one.why}")
            if not block.of_noise:
                tally.costs.setdefault(name, []).append(player.spent - before)
            tally.replaces[len(tally.blocks)] = one.place, one.factor
            tally.blocks += _with_voids(tally, [repeated], repeated=True)


def _against_its_round(tally: Tally, block: Block) -> str:
    """Why a block that ran again by itself does not count: beside the blocks of its round that do, that of the first arm if
    there is one."""
    others = [
        one
        for one in tally.blocks
        if (one.pair, one.of_noise) == (block.pair, block.of_noise) and one.arm != block.arm and one.void is None
    ]
    if not others:
        return recompiled(block)
    if block.arm == tally.names[0]:
        return disturbance(others[0], block, tally.apart.get((others[0].arm, block.arm), ()))
    other = next((one for one in others if one.arm == tally.names[0]), others[0])
    return disturbance(block, other, tally.apart.get((block.arm, other.arm), ()))


def _with_growth(made: Sequence[Block]) -> list[Block]:
    """Where memory grew in one block of a round so that it does not count, none does in which it grew at all: what is
    compared was then measured behind the same."""
    if not any(grown(block) for block in made):
        return [*made]
    return [
        block.model_copy(update={"void": block.void or (growth(block) if block.segments else None)}) for block in made
    ]


def _with_voids(tally: Tally, made: Sequence[Block], *, repeated: bool) -> list[Block]:
    """The blocks of a round, those marked that do not count: each is held against that of the first arm there.

    repeated: whether they run again, by themselves; the first arm's may then stand in the round already.
    """
    if not made:
        return []
    if len(made) == 1 or (repeated and all(block.arm != tally.names[0] for block in made)):
        return [block.model_copy(update={"void": _against_its_round(tally, block) or None}) for block in made]
    first, *others = sorted(made, key=lambda block: block.arm != tally.names[0])
    void: dict[int, str] = {}
    for other in others:
        before = tally.apart.setdefault((other.arm, first.arm), [])
        why = disturbance(other, first, before)
        if (apart := clocks_apart(other.clocks, first.clocks)) is not None:
            before.append(apart)
        if why:
            both = [block for block in (other, first) if block.recompiles] or [other, first]
            void |= {id(block): why for block in both}
    return [block.model_copy(update={"void": void.get(id(block))}) for block in made]
