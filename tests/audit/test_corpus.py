"""Promise: on projects as people write them, what the audit says is so, and most of what is wrong is said."""

from pathlib import Path

import pytest

from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.place import Place
from tests.audit.corpus_score import Score, score, score_of

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize(
    ("part", "projects", "precision", "recall"),
    [
        ("before", 22, 0.99, 0.97),
        ("after", 12, 0.99, 0.99),
        ("later", 14, 0.99, 0.97),
        ("third", 16, 0.98, 0.96),
        ("fourth", 16, 0.99, 0.94),
        ("fifth", 16, 0.99, 0.92),
        ("sixth", 16, 0.96, 0.92),
        ("seventh", 16, 0.96, 0.89),
        ("eighth", 16, 0.95, 0.98),
        ("ninth", 14, 0.99, 0.99),
        ("tenth", 14, 0.99, 0.98),
        ("eleventh", 14, 0.97, 0.9),
        ("twelfth", 14, 0.99, 0.98),
        ("thirteenth", 14, 0.99, 0.98),
        ("fourteenth", 14, 0.99, 0.98),
        ("fifteenth", 14, 0.99, 0.96),
        ("sixteenth", 14, 0.99, 0.98),
        ("seventeenth", 14, 0.99, 0.98),
        ("eighteenth", 14, 0.98, 0.96),
        ("nineteenth", 14, 0.99, 0.98),
        ("twentieth", 14, 0.99, 0.98),
        ("twentyfirst", 14, 0.99, 0.98),
        ("twentysecond", 14, 0.99, 0.98),
        ("twentythird", 14, 0.99, 0.98),
        ("twentyfourth", 14, 0.99, 0.94),
        ("twentyfifth", 14, 0.99, 0.98),
        ("twentysixth", 14, 0.99, 0.98),
        ("twentyseventh", 14, 0.99, 0.98),
        ("twentyeighth", 14, 0.99, 0.9),
        ("twentyninth", 14, 0.99, 0.98),
        ("thirtieth", 14, 0.99, 0.98),
        ("thirtyfirst", 14, 0.99, 0.97),
        ("thirtysecond", 14, 0.99, 0.81),
        ("thirtythird", 14, 0.97, 0.84),
        ("thirtyfourth", 14, 0.99, 0.75),
        ("thirtyfifth", 14, 0.97, 0.72),
    ],
)
def test_a_part_of_the_corpus(part: str, projects: int, precision: float, recall: float) -> None:
    """What was reached is held; `python -m tests.audit.corpus_score` names what is false and missed."""
    assert len(list((CORPUS / part).glob("*.json"))) == projects
    result = score_of(CORPUS / part)
    print(part, result)
    assert result.precision >= precision, "\n".join(result.false)
    assert result.recall >= recall, "\n".join(result.missed)


def finding(code: str, line: int) -> Finding:
    remedy = Remedy(Risk.SAFE, "Mend it.")
    return Finding("It is so.", Place("a.py", line), Evidence(Level.TEXT), Stake(AtStake.TIME), remedy, code=code)


def test_a_score_counts_what_is_right_false_and_missed() -> None:
    """A control: another family, another line, and what is debatable."""
    labels = {
        "problems": [
            {"file": "a.py", "line": 10, "what": "One.", "families": ["HST"]},
            {"file": "a.py", "line": 50, "what": "Another.", "families": ["MSR"]},
        ],
        "debatable": [{"file": "a.py", "line": 90, "what": "Perhaps."}],
    }
    total = Score()
    score("x", [finding("HST001", 12), finding("HST001", 50), finding("OPT001", 91)], labels, total)
    assert (len(total.right), len(total.false), len(total.found), len(total.missed)) == (1, 1, 1, 1)
    assert (total.precision, total.recall) == (0.5, 0.5)
