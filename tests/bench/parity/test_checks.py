"""Promise: the bounds of P1, P2 and P3 hold where they are said to: what is within passes, what is beyond fails and is
named, and nothing that is not finite passes, or stands in a result.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dynotune.bench.parity.course import same_course
from dynotune.bench.parity.draws import normal
from dynotune.bench.parity.exact import distance, exact, largest
from dynotune.bench.parity.gate import in_words
from dynotune.bench.parity.held_out import compared
from dynotune.bench.parity.precision import within_precision
from dynotune.bench.parity.question import Answer
from dynotune.bench.parity.step import KEPT, kept, of_parameters
from dynotune.results.result import Check

KINDS = ("gradient", "update", "drawn")


def answer(changes: dict[str, Any] | None = None, precision: str = "float32", **facts: Any) -> Answer:
    """A made-up one; `changes` are added to its tensors."""
    generator = torch.Generator().manual_seed(1)
    tensors = {f"{kind}/{name}": torch.randn(6, 4, generator=generator) for kind in KINDS for name in "ab"}
    tensors |= {f"loss/{row}": 1 + torch.rand(row + 1, generator=generator) for row in range(3)}
    for name, change in (changes or {}).items():
        tensors[name] = tensors[name] + change
    squares = {name: float(t.double().square().sum()) for name, t in tensors.items() if not name.startswith("loss")}
    known = {"data": "d", "loss": 2.0, "squares": squares, "precision": f"float32, computed in {precision}"}
    return Answer({**known, **facts}, tensors)


def failing(checks: list[Check]) -> list[str]:
    return [one.quantity for one in checks if not one.ok]


def off(tensor: Tensor, share: float) -> Tensor:
    """Something at right angles to it, of this share of its size."""
    flat = tensor.reshape(-1)
    other = torch.cat([-flat[1::2, None], flat[0::2, None]], 1).reshape(-1)
    return (share * other).view_as(tensor)


@pytest.mark.parametrize(("share", "fails"), [(0.9e-4, []), (1.2e-4, ["gradient"])])
def test_a_gradient_is_held_to_its_bound(share: float, fails: list[str]) -> None:
    right = answer()
    wrong = answer({name: off(t, share) for name, t in right.tensors.items() if name.startswith("gradient/")})
    assert failing(exact(right, wrong)) == fails


@pytest.mark.parametrize(
    ("changes", "facts", "first"),
    [
        ({}, {"data": "e"}, "data"),
        ({"loss/2": torch.tensor([0.0, 0.0, 1e-4])}, {}, "loss of each token"),
        ({}, {"loss": 2.0001}, "loss of the step"),
        ({"update/a": 1e-2}, {}, "one update"),
        ({"drawn/b": 1e-2}, {}, "three updates"),
        ({"gradient/a": math.nan}, {}, "gradient"),
        ({"loss/0": math.nan}, {}, "loss of each token"),
    ],
)
def test_each_quantity_alone_stops_an_arm(changes: dict[str, Any], facts: dict[str, Any], first: str) -> None:
    checks = exact(answer(), answer(changes, **facts))
    assert failing(checks)[0] == first
    assert all(math.isfinite(one.observed) for one in checks)
    assert first in in_words(next(one for one in checks if not one.ok))


def test_what_one_arm_lacks_is_named() -> None:
    without = answer()
    for name in ("gradient/a", "loss/1"):
        del without.tensors[name]
    checks = exact(answer(), without)
    assert failing(checks)[:2] == ["trained parameters", "label tokens"]
    assert "a" in checks[1].detail
    assert "label tokens: 6 and 4 in 3 examples" in in_words(checks[2])


def test_a_token_that_is_all_but_certain_is_measured_by_the_mean() -> None:
    a, b = {"0": torch.tensor([5.0, 3e-7])}, {"0": torch.tensor([5.0, 1e-7])}
    assert largest(a, b) < 1e-5
    assert largest({"0": torch.tensor([5.001, 1e-7])}, b) > 1e-5


def test_rows_that_were_not_kept_are_seen_by_their_norm() -> None:
    big = {"w": torch.nn.Parameter(torch.zeros(2 * KEPT // 64, 64))}
    right = torch.randn(big["w"].shape)
    wrong = right.clone()
    skipped = next(i for i in range(len(right)) if not any(torch.equal(right[i], row) for row in kept(right)[: i + 2]))
    wrong[skipped:] *= 1.5
    made = []
    for value in (right, wrong):
        tensors, squares = of_parameters("gradient", big, [("w", value)])
        made.append(Answer({"squares": squares}, tensors))
    assert made[0].tensors["gradient/w"].numel() <= KEPT
    assert distance("gradient", made[1], made[0]) > 1e-2


@pytest.mark.parametrize(("mine", "ok"), [(1.4e-3, True), (1.7e-3, False)])
def test_an_arm_may_be_half_as_far_again_from_the_reference_as_its_baseline(mine: float, ok: bool) -> None:
    reference = answer()
    of = {name: t for name, t in reference.tensors.items() if name.startswith("gradient/")}
    a, b = (answer({name: off(t, size) for name, t in of.items()}, "bfloat16") for size in (1e-3, mine))
    checks = within_precision(reference, {"a": a}, b)
    assert [one.ok for one in checks] == [True, ok]
    assert checks[1].detail.startswith("a has 1.0e-03 in float32, computed in bfloat16")
    further = answer({name: off(t, 1.2e-3) for name, t in of.items()})
    assert within_precision(reference, {"a": a, "plain": further}, b)[1].ok


def test_below_the_bounds_of_p1_the_baseline_does_not_matter() -> None:
    reference = answer()
    of = {name: off(t, 5e-5) for name, t in reference.tensors.items() if name.startswith("gradient/")}
    assert not failing(within_precision(reference, {"a": reference}, answer(of)))


def test_what_is_drawn_depends_on_name_and_seed_alone() -> None:
    p = torch.empty(3, 4)
    assert torch.equal(normal("a", p, 1), normal("a", p.double(), 1))
    assert not torch.equal(normal("a", p, 1), normal("a", p, 2))
    assert not torch.equal(normal("a", p, 1), normal("b", p, 1))


def trajectory(gap: float = 0.0, noise: float = 0.0, bad: int = 0, norm: float = 1.0) -> Answer:
    generator = torch.Generator().manual_seed(5)
    base = torch.randn(60, generator=generator) * 0.1 + 2.0
    losses = (base + gap + noise * torch.randn(60, generator=generator)).tolist()
    return Answer({"losses": [*losses[: 60 - bad], *[math.nan] * bad], "norms": [norm] * 60})


def test_a_trajectory_is_the_same_within_half_a_percent() -> None:
    first = trajectory()
    assert not failing(same_course(first, trajectory(gap=2e-3, noise=1e-3), trajectory(noise=1e-6)))
    assert failing(same_course(first, trajectory(gap=2e-2), trajectory(noise=1e-6))) == ["mean gap of the loss"]
    assert failing(same_course(first, trajectory(noise=0.5), trajectory())) == ["mean gap of the loss"]
    assert failing(same_course(first, trajectory(bad=2), trajectory())) == ["steps that are not finite"]
    assert failing(same_course(first, trajectory(norm=1.5), trajectory())) == ["tail of the gradient's norm"]


def test_held_out_losses_have_an_interval_and_fail_nothing() -> None:
    check = compared((2.0, 2.1, 2.2), (1.9, 1.99, 2.12), "behavioural")
    assert check.ok
    assert check.observed == pytest.approx(0.09667, abs=1e-4)
    assert check.bound == pytest.approx(4.3027 * 0.01528 / 3**0.5, rel=1e-2)
    assert check.detail.startswith("behavioural: 2.0033 against 2.1000, -0.0967 [")
