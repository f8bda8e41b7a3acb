"""The sentences that every output has: what is at stake, what was checked, what together, the bottleneck, what next.

All of it is fit for a terminal: what stands in audited files is escaped.
"""

from collections import Counter

from dynotune.audit.cost import together
from dynotune.audit.finding import AtStake, Finding, Level, NotChecked, Severity, severity
from dynotune.audit.plan.phases import Step, When, phases
from dynotune.audit.registry import rules
from dynotune.audit.run import Result
from dynotune.printable import printable

TITLES = {
    AtStake.RESULT: "Another model than was meant",
    AtStake.STOPS: "It stops",
    AtStake.LOST: "Work or data can be lost",
    AtStake.TIME: "Time",
    AtStake.MEMORY: "Memory",
    AtStake.FIGURES: "Figures that mean something else",
    AtStake.CHOICE: "What is learned: a choice",
    AtStake.CLARITY: "Without effect",
}
WORD = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def text(given: object, limit: int = 2000) -> str:
    """On one line, fit for a terminal."""
    return printable(" ".join(str(given).split()), limit)


def word(finding: Finding) -> str:
    return WORD[severity(finding.stake)]


def where(finding: Finding) -> str:
    if finding.place.file:
        return text(finding.place)
    if finding.evidence.level is not Level.PROFILED:
        return "the environment"
    return f"the profile `{text(finding.place.key)}`" if finding.place.key else "the profile"


def name(code: str) -> str:
    found = rules().get(code)
    return found.name if found else ""


def level(finding: Finding) -> str:
    """`E1`."""
    return f"E{int(finding.evidence.level)}"


def seconds(value: float) -> str:
    if value < 0.95:
        return f"{value:.2g} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def effect(finding: Finding, result: Result) -> str:
    """`up to 12 % of a step, 40 s an epoch`; empty where nothing can be counted."""
    stake = finding.stake
    known = [value for value in (stake.low, stake.high) if value is not None]
    if not known:
        return ""
    if stake.what is AtStake.TIME:
        said = f"{_range(stake.low, stake.high, 100)} % of a step"
        cost = result.cost.seconds(finding)
        if cost is None:
            return said
        return f"{said}, at most {seconds(cost[1])} an epoch"
    if stake.what is AtStake.MEMORY:
        return f"{_range(stake.low, stake.high, 1)} GiB"
    return ""


def _range(low: float | None, high: float | None, scale: float) -> str:
    if high is None:
        return f"at least {_figure((low or 0) * scale)}"
    if not low:
        return f"up to {_figure(high * scale)}"
    return f"{_figure(low * scale)} to {_figure(high * scale)}" if low != high else _figure(high * scale)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def facts(finding: Finding) -> str:
    return "; ".join(f"{text(key, 80)}: {text(value, 200)}" for key, value in finding.evidence.facts.items())


def headline(result: Result) -> str:
    """`2 errors, 1 warning: 3 jobs in 7 files`."""
    found = Counter(word(finding) for finding in result.findings)
    counts = ", ".join(_plural(found[one], one) for one in ("error", "warning", "note") if found[one])
    nothing = "nothing was checked" if not result.checked else "nothing found"
    if not counts and result.checked and holes(result):
        nothing = "nothing found in what could be followed"
    return f"{counts or nothing}: {looked_at(result)}"


def holes(result: Result) -> list[str]:
    """Settings of jobs that could not be followed: sentences, first among what could not be looked at."""
    lost = {hole.said: hole for job in result.project.jobs for hole in job.holes}
    rules_of = Counter(one.why for one in result.not_checked if one.why in lost)
    return [
        f"not followed: {text(said, 300)}. {_plural(rules_of[said], 'rule')} asked for settings that may come from there,"
        " and none of them counts as passed."
        for said in lost
    ]


def looked_at(result: Result) -> str:
    project = result.project
    parts = [
        _plural(len(given), what)
        for given, what in (
            (project.jobs, "job"),
            (project.scripts, "script"),
            (project.configs, "configuration"),
            (project.launches, "launch"),
            (project.data, "data set"),
            (project.runs, "run"),
        )
        if given
    ]
    parts += ["the environment"] if project.environment is not None else []
    parts += ["a profile"] if project.profile is not None else []
    return ", ".join(parts) or "nothing to check"


def _plural(count: int, what: str) -> str:
    ending = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return f"{count} {what}{ending}"


def keep(result: Result) -> str:
    """How many checks passed."""
    count = len(result.passed)
    return f"Keep as is: {_plural(count, 'check')} passed." if count else "No check passed without a finding."


def checked(result: Result) -> str:
    """`Checked 31 rules, could not check 9: no data was given (--data FILE) (6); ...`"""
    missing = unanswered(result)
    said = f"Checked {_plural(result.checked, 'rule')}, could not check "
    if not missing:
        return said + "0."
    reasons = "; ".join(f"{text(why, 200)} ({_codes(codes)})" for why, codes in missing.items())
    return f"{said}{len({code for codes in missing.values() for code in codes})}: {reasons}."


_NOT_FOLLOWED = "settings of a job could not be followed, see below"


def unanswered(result: Result) -> dict[str, list[str]]:
    """Codes of rules that found nothing and could not be checked somewhere, by reason; most rules first."""
    found = {finding.code for finding in result.findings}
    reasons: dict[str, list[str]] = {}
    lost = {hole.said for job in result.project.jobs for hole in job.holes}
    for one in result.not_checked:
        why = _NOT_FOLLOWED if one.why in lost else one.why
        if one.code not in found and one.code not in reasons.setdefault(why, []):
            reasons[why].append(one.code)
    return dict(sorted(reasons.items(), key=lambda item: -len(item[1])) if reasons else ())


def _codes(codes: list[str]) -> str:
    return ", ".join(codes) if len(codes) <= 3 else f"{len(codes)} rules"


def data(result: Result) -> list[str]:
    """Which data was looked at, how much of it and how: sentences."""
    read = [(one, f"{one.rows:,} rows" if one.rows != 1 else "1 row") for one in result.project.data]
    return [f"data: {text(one.place)}: {'; '.join([rows, *map(text, one.said)])}" for one, rows in read]


def not_read(result: Result) -> list[str]:
    """Files, or parts of them, that were not read: sentences."""
    return [f"not read: {text(one.place)}: {text(one.why)}".replace(": :", ":") for one in result.project.not_read]


def not_checked_line(one: NotChecked) -> str:
    at = f" at {text(one.place)}" if one.place else ""
    return f"{one.code}{at} could not be checked: {text(one.why)}"


def remarks(result: Result) -> list[str]:
    """On suppressions and the baseline."""
    return [f"{text(place)}: {text(said)}" if place.file else text(said) for place, said in result.remarks]


def answered(result: Result) -> str:
    """What is not shown, and why; empty where everything is."""
    parts = [f"{len(result.suppressed)} suppressed by comments"] if result.suppressed else []
    parts += [f"{len(result.known)} in the baseline"] if result.known else []
    return f"Not shown: {', '.join(parts)}." if parts else ""


def ceiling(result: Result) -> str:
    """What all of it together saves at most; empty where nothing says a share."""
    share = together(result.findings)
    if not share:
        return ""
    most = "all of the step" if share >= 0.995 else f"{share * 100:.0f} % of a step, {1 / (1 - share):.2f}x"
    in_time = ""
    if result.cost.epoch_seconds is not None:
        in_time = f", {seconds(share * result.cost.epoch_seconds)} an epoch"
    return (
        f"Together at most {most}{in_time}: a ceiling by what the rules allow, not a sum and not measured;"
        " changes of the result are not in it."
    )


def bottleneck(result: Result) -> str:
    """What takes the most, as far as that is known."""
    if result.project.profile is not None:
        from dynotune.audit.profiled import analysed

        said = analysed(result.project.profile).bottleneck
        return f"Bottleneck: {text(said, 300).removeprefix('The bottleneck: ')}"
    timed = [one for one in result.findings if one.stake.what is AtStake.TIME and one.stake.high]
    if timed:
        first = max(timed, key=lambda one: one.stake.high or 0.0)
        return f"Bottleneck, by what is known without a profile: {first.code} {name(first.code)} ({effect(first, result)})."
    return "Bottleneck: not known from files alone; `dynotune profile` measures where a step's time goes."


def next_action(result: Result) -> str:
    """One thing to do now."""
    lost = next((one for one in result.project.not_read if one.place.file and one.place.file in result.named), None)
    if lost is not None and not result.findings:
        return f"Next: {text(lost.place)} was not read: {text(lost.why, 200)}. Mend that, and audit again."
    if not result.findings and holes(result):
        hole = next(hole for job in result.project.jobs for hole in job.holes)
        return f"Next: look at {text(hole.place)} by hand: what it hands to the trainer was not seen."
    if not result.checked:
        return "Next: name what to check, such as `dynotune audit --config sft.yaml --env`."
    plan = [phase for phase in phases(result.findings, result.cost, result.refused) if phase.when is not When.DECIDE]
    steps: list[Step] = [step for phase in plan for step in phase.steps]
    by_fix = [step for step in steps if step.by_fix]
    wrong = next((one for one in result.findings if severity(one.stake) is Severity.ERROR), None)
    if wrong is not None and not any(wrong in step.findings for step in by_fix):
        more = f" Then `--fix` applies {_plural(len(by_fix), 'safe change')}." if by_fix else ""
        return f"Next: {wrong.code} at {where(wrong)}: {text(wrong.remedy.text, 200)}{more}"
    if steps and not steps[0].by_fix:
        first = steps[0].findings[0]
        more = f" Then `--fix` applies {_plural(len(by_fix), 'safe change')}." if by_fix else ""
        return f"Next: {first.code} at {where(first)}: {text(steps[0].text, 200)}{more}"
    if by_fix:
        return f"Next: the same command with `--fix` applies {_plural(len(by_fix), 'safe change')} and shows the diff."
    if result.findings:
        return "Next: decide what is listed for you to decide; nothing else is left to do."
    return "Next: `dynotune bench` measures what a change brings; nothing here asks for one."
