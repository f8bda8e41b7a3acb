"""Promise: what compiling costs stands beside what it saves, in steps; and faults are said as such."""

from dynotune.model.compiled.function import Shape
from dynotune.model.compiled.report import Comparison, Compilation, CompileReport

WIDE, FIRST = Shape(16_384, True), Shape(16_384, False)


def made(shape: Shape, layer: str = "layers.1", found: bool = False, again: bool = False, why: str = "") -> Compilation:
    return Compilation(layer, shape, 5.0, found, again, why)


def test_break_even() -> None:
    report = CompileReport(28, (made(FIRST), made(WIDE)), comparison=Comparison(16_384, 1.0, 0.9), folder="/cache")
    steps = report.break_even_steps(2 * 16_384)
    assert steps is not None
    assert abs(steps - 50) < 1e-6
    assert report.lines(2 * 16_384) == [
        "compiled layers: 2 graphs for 1 token count in 10.0 s (compile cache /cache: cold)",
        "compiled layers: 900.0 ms a micro-batch of 16,384 tokens, forward and backward, against 1000.0 ms without them: it"
        " has paid for its 10.0 s after 50 steps",
    ]


def test_what_does_not_pay_is_said() -> None:
    report = CompileReport(28, (made(WIDE),), comparison=Comparison(16_384, 0.9, 0.9))
    assert report.break_even_steps(16_384) == float("inf")
    assert report.lines(16_384)[-1].endswith("it does not pay here")


def test_nothing_is_claimed_that_was_not_compared() -> None:
    assert CompileReport(28, (made(WIDE),)).break_even_steps(16_384) is None
    assert CompileReport(28, ()).lines() == []


def test_warm_partly_warm_and_cold() -> None:
    for founds, words in (((True, True), "warm"), ((True, False), "1 of 2 graphs found"), ((False, False), "cold")):
        report = CompileReport(2, tuple(made(WIDE, found=found) for found in founds), folder="/cache")
        assert f"/cache: {words})" in report.lines()[0]


def test_faults_and_layers_that_are_not_alike() -> None:
    again = made(WIDE, again=True, why="L['self'].scaling == 0.5")
    unlike = tuple(made(WIDE, f"layers.{i}", why="forward is another object") for i in range(28))
    lines = CompileReport(28, (*unlike, again), eager=("layers.3, 64 tokens: limit",)).lines()
    assert [line.split(":")[0] for line in lines[1:]] == ["note", "fault", "fault"]
    assert "28 layers needed 28 graphs for 16,384 tokens" in lines[1]
    assert "forward is another object" in lines[1]
    assert "layers.1 was compiled again" in lines[2]
    assert len(CompileReport(28, unlike[:2]).lines()) == 1, "two kinds of layers are nothing remarkable"


def test_json() -> None:
    found = CompileReport(28, (made(FIRST, found=True),), comparison=Comparison(64, 1.0, 0.5)).to_json()
    assert found["compilations"][0]["shape"] == {"tokens": 16_384, "with_gradient": False, "gathered": False}
    assert (found["graphs"], found["found_on_disk"]) == (1, 1)
    assert found["comparison"] == {"tokens": 64, "other_seconds": 1.0, "compiled_seconds": 0.5}


def test_the_json_gives_the_break_even_or_why_there_is_none() -> None:
    def told(tokens_a_step: float | None, comparison: Comparison | None) -> tuple[float | None, str | None]:
        found = CompileReport(28, (made(FIRST), made(WIDE)), comparison=comparison).to_json(tokens_a_step)
        return found["break_even_steps"], found["why_no_break_even"]

    assert told(2 * 16_384, Comparison(16_384, 1.0, 0.9)) == (50.0, None)
    assert told(2 * 16_384, Comparison(16_384, 0.9, 0.9)) == (None, "it saves no time here")
    assert told(2 * 16_384, None) == (None, "no micro-batch was run both ways")
    assert told(None, Comparison(16_384, 1.0, 0.9)) == (None, "how many tokens a step has is not known")


def test_several_recompilations_are_told_with_their_total() -> None:
    again = tuple(made(WIDE, f"layers.{i}", again=True, why="a guard") for i in range(3))
    lines = CompileReport(28, again).lines()
    assert [line for line in lines if "made again in all" in line] == [
        "fault: 3 graphs were made again in all, in 15.0 s"
    ]


def test_shapes_are_told_apart_in_words() -> None:
    shapes = [Shape(64, gradient, gathered) for gradient in (True, False) for gathered in (False, True)]
    assert list(map(str, shapes)) == [
        "64 tokens",
        "64 tokens (shared beginnings)",
        "64 tokens (no gradient of the input)",
        "64 tokens (shared beginnings, no gradient of the input)",
    ]
