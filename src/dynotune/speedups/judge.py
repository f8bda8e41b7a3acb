"""The verdict on one speed-up: what was expected of a traced step against what was seen of it. Pure data in and out.

On a GPU what ran there decides, on the CPU operators do. What could not be judged is never taken for proof: no device
events on a GPU, or no operators to look for on the CPU, is *unknown*.
"""

from collections.abc import Iterable, Sequence

from dynotune.measure.evidence import Evidence, Phase
from dynotune.speedups.expectation import Absent, Expectation, Expected, Holds, Observation, Verdict
from dynotune.speedups.left_out import in_words
from dynotune.speedups.sightings import ON_DEVICE, Lack, Sighting, look, patterns_of, shown


def judge(
    expectations: Sequence[Expectation], evidence: Evidence, places: Iterable[str] = (), left_out: Sequence[str] = ()
) -> Observation:
    """Whether a speed-up that stands at `places` was seen to run. left_out: modules that it is for and where it does not
    stand, as `Installation.left_out` has them: they count among all, and it is *partial* at best.

    A place counts where everything that is expected of it was seen in every micro-batch. Something that must be absent and
    was seen, or a fact that does not hold, makes *partial* the best verdict: it ran, and not alone or not as it should.
    """
    expected = [one for one in expectations if isinstance(one, Expected)]
    everywhere = tuple(dict.fromkeys([*places, *(place for one in expected for place in one.at)]))
    standing = len(everywhere) or 1
    of = standing + len(left_out)
    if (why := _says_nothing(expectations, evidence)) is not None:
        return Observation(Verdict.UNKNOWN, 0, of, why)
    sightings = [look(one, evidence) for one in expected]
    not_judged = [one.not_judged for one in sightings if one.not_judged]
    facts = [(one.what, one.test(evidence)) for one in expectations if isinstance(one, Holds)]
    not_judged += [f"the trace does not say whether {what}" for what, holds in facts if holds is None]
    absences = [(one.what, one.found(evidence)) for one in expectations if isinstance(one, Absent)]
    against = [f"{what}: {found}" for what, found in absences if found is not None]
    against += [f"does not hold: {what}" for what, holds in facts if holds is False]

    lacks = [lack for one in sightings if not one.not_judged for lack in one.lacks]
    lacks += _where_nothing_is_expected(everywhere, expected)
    something = any(one.events for one in sightings) or any(holds for _, holds in facts)
    if not expected:  # facts and absences alone: they stand for all places
        seen = 0 if against else standing
        something = something or not against
    else:
        seen = _places_seen(standing, sightings, lacks)
    verdict = _verdict(something, fault=bool(lacks or against or left_out), all_judged=not not_judged)
    line = "; ".join([*_lines(sightings, evidence), *not_judged])
    return Observation(
        verdict,
        seen,
        of,
        line or _without_events(expectations, against),
        (*_missing(lacks, expected), *map(in_words, left_out)),
        tuple(against),
    )


def _says_nothing(expectations: Sequence[Expectation], evidence: Evidence) -> str | None:
    """Why nothing at all can be judged."""
    if not expectations:
        return "nothing is expected of it that a trace could show"
    if (why := evidence.facts.get("not_traced")) is not None:
        return f"the step was not traced: {why}"
    if evidence.device == "cuda" and not evidence.has_device_events:
        return "the profiler saw no kernel on the GPU"
    return "the trace is empty" if not evidence.seen else None


def _verdict(something: bool, fault: bool, all_judged: bool) -> Verdict:
    if not fault:
        return Verdict.ENGAGED if all_judged else Verdict.UNKNOWN
    return Verdict.PARTIAL if something else Verdict.NOT_ENGAGED


def _where_nothing_is_expected(everywhere: Sequence[str], expected: Sequence[Expected]) -> list[Lack]:
    """A speed-up that says it stands at a place and not what is to be seen there has no proof for it."""
    covered = {place for one in expected for place in one.at}
    if not covered:
        return []
    return [Lack(place, Phase.OTHER, 1, 1, "nothing is expected there") for place in everywhere if place not in covered]


def _places_seen(of: int, sightings: Sequence[Sighting], lacks: Sequence[Lack]) -> int:
    """Places that lack nothing. What is expected anywhere in the step counts for all of them, in proportion."""
    if any(one.not_judged for one in sightings):
        return 0
    most: dict[str, int] = {}
    for lack in lacks:
        if lack.at:
            most[lack.at] = max(most.get(lack.at, 0), lack.lacking)
    share = min((one.share for one in sightings if not one.expected.at), default=1.0)
    return max(0, min(of - sum(most.values()), int(of * share)))


def _missing(lacks: Sequence[Lack], expected: Sequence[Expected]) -> tuple[str, ...]:
    """Each place once, with the phase where something was seen in another one."""
    by_place: dict[str, list[Lack]] = {}
    for lack in lacks:
        by_place.setdefault(lack.at, []).append(lack)
    phases = {one.phase for one in expected}
    return tuple(_in_words(at, found, phases) for at, found in by_place.items())


def _in_words(at: str, lacks: Sequence[Lack], expected_in: set[Phase]) -> str:
    lacking_in = dict.fromkeys(lack.phase for lack in lacks if lack.phase in expected_in)
    notes = [" and ".join(lacking_in)] if set(lacking_in) < expected_in and lacking_in else []
    notes += dict.fromkeys(lack.because for lack in lacks if lack.because)
    many = max(lacks, key=lambda lack: lack.lacking)
    if many.places > 1:
        notes.append(f"{many.lacking} of the {many.places} in it")
    return f"{at or 'the step'} ({', '.join(notes)})" if notes else at


def _lines(sightings: Sequence[Sighting], evidence: Evidence) -> list[str]:
    """What was seen, and how much of the device's time that is."""
    seen = [one for one in sightings if one.events]
    if not seen:
        return []
    parts = [f"{shown(one.events, patterns_of(one.expected, evidence.device))} ({one.expected.phase})" for one in seen]
    line = ", ".join(dict.fromkeys(parts))
    events = {id(event): event for one in seen for event in one.events if event.source in ON_DEVICE}
    whole = sum(one.microseconds for one in evidence.seen if one.source in ON_DEVICE)
    if events and whole:
        part = sum(event.microseconds for event in events.values()) / whole
        line += f": {100 * part:.1f} % of the device's time" + ("" if evidence.is_whole else " in what was traced")
    return [line]


def _without_events(expectations: Sequence[Expectation], against: Sequence[str]) -> str:
    expected = [one.what for one in expectations if isinstance(one, Expected)]
    if expected:
        return f"nothing was seen of {', '.join(dict.fromkeys(expected))}"
    if against:
        return "what must be absent was seen, or what must hold does not"
    holds = [f"it holds: {one.what}" for one in expectations if isinstance(one, Holds)]
    return ", ".join([*holds, *(f"no {one.what}" for one in expectations if isinstance(one, Absent))])
