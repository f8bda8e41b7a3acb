"""Results of audits, made up: many findings, and hostile ones."""

from dynotune.audit.cost import Cost, in_order
from dynotune.audit.facts.project import NotRead, Project
from dynotune.audit.finding import AtStake, Finding, NotChecked, Risk
from dynotune.audit.judging.suppression import Suppression
from dynotune.audit.place import NOWHERE, Place
from dynotune.audit.run import Result, Suppressed
from tests.audit.made_up import a_finding

NASTY = "\x1b[2Jevil\u202e <script>alert(1)</script> @team [x](http://evil) | `a|b` **b**\r\n# head"
LONG = "It trains on 31 % real tokens of what it computes, by the lengths of 20,000 rows, which takes time. " * 3


def result(*findings: Finding, seconds: float | None = 3600.0, **more: object) -> Result:
    cost = Cost(seconds, "a run")
    given = {
        "suppressed": (
            Suppressed(a_finding("OPT001"), Suppression(Place("a.yaml", 3), frozenset({"OPT001"}), "meant")),
        ),
        "known": (),
        "passed": ("OPT001",),
        "not_checked": (NotChecked("no data was given (`--data FILE`)", code="DAT002"),),
        "remarks": (),
        "project": Project(".", texts={"sft.yaml": "a: 1\nb: 2\noptim: adamw_torch\n"}),
        "checked": 12,
        **more,
    }
    return Result(findings=in_order(findings, cost), cost=cost, **given)  # type: ignore[arg-type]


def many() -> Result:
    """More than a screen, of every kind."""
    found = [
        a_finding(
            "OPT001", Place(f"configs/{'deep/' * 12}a{i}.yaml", i, key="optim"), what, 0.1, 0.3, risk, LONG + str(i)
        )
        for i, (what, risk) in enumerate(((what, risk) for what in AtStake for risk in Risk), 1)
    ]
    left = [NotRead(Place(f"broken{i}.py"), "it is no Python: " + LONG) for i in range(9)]
    return result(*found, project=Project(".", not_read=left), not_checked=[
        NotChecked(f"reason {i}: {LONG}", code=f"ATT{i:03}") for i in range(30)
    ])  # fmt: skip


def nasty() -> Result:
    finding = a_finding("OPT001", Place(NASTY, 3, key=NASTY), AtStake.RESULT, None, None, Risk.SAFE, NASTY, text=NASTY,
                        deliberate=NASTY, also=(Place(NASTY),), measure=NASTY)  # fmt: skip
    one = Suppression(Place(NASTY, 1), frozenset({"OPT001"}), NASTY)
    return result(
        finding,
        a_finding(place=NOWHERE, message=NASTY),
        suppressed=(Suppressed(finding, one),),
        not_checked=(NotChecked(NASTY, Place(NASTY), "DAT002"),),
        remarks=((Place(NASTY), NASTY),),
        project=Project(NASTY, not_read=[NotRead(Place(NASTY), NASTY)], texts={NASTY: f"{NASTY}\n" * 4}),
    )


EVERY = {"none": lambda: result(), "one": lambda: result(a_finding()), "many": many, "nasty": nasty,
         "nothing checked": lambda: result(checked=0, passed=(), suppressed=())}  # fmt: skip
