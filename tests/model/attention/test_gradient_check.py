"""Promise: a kernel that is wrong in its output or in any gradient, or lets documents see each other, is found out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynotune.model.attention import gradient_check
from dynotune.model.attention.backends import Asked, reference
from dynotune.model.attention.gradient_check import LENGTHS, TRUNKS, check, name_of
from dynotune.model.attention.segments import Keys, Segments

ASKED = Asked(torch.device("cpu"), torch.bfloat16, 4, 2, 16, 16, None, None)


class Kernel:
    """The exact reference, spoiled by `wrong`."""

    WORDS = "a kernel"
    ANY_SIZES = False

    def __init__(self, wrong: Callable[..., Any] | None = None) -> None:
        self.wrong = wrong or (lambda out, *_: out)
        self.segments: Segments | None = None

    def limits(self, asked: Asked) -> None: ...

    def missing(self) -> None: ...

    def prepare(self, segments: Segments, decoder: nn.Module) -> Segments:
        return segments

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, scaling: float, window: int | None,
        softcap: float | None, plan: Segments, keys: Keys | None = None,
    ) -> Tensor:  # fmt: skip
        assert longest >= max(plan.lengths)
        assert (keys is None) == (plan.gathered is None)
        key_lengths = None
        if keys is not None and plan.gathered is not None:
            key_lengths = plan.gathered.lengths
            assert keys.longest >= max(key_lengths)
            assert len(keys.boundaries_S1) == len(ends)
        assert len(ends) == 17  # as in use: padded by empty segments
        parts = [x.transpose(0, 1) for x in (q, k, v)]
        return self.wrong(reference.attend(*parts, plan.lengths, scaling, window, softcap, key_lengths), q, k, v)


@pytest.fixture(autouse=True)
def _fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processor cores take seconds for what a GPU does at once."""
    monkeypatch.setattr(gradient_check, "LENGTHS", (1, 63, 64, 65, 0, 33, 2, 16, 129, 5))
    monkeypatch.setattr(gradient_check, "TRUNKS", (0, 5, 64, 40, 0, 0, 1, 30, 33, 3))
    monkeypatch.setattr(gradient_check, "COLD", (64, 1, 0, 0, 0, 0, 0, 0, 0, 3))
    monkeypatch.setattr(gradient_check, "LONGEST_WINDOW", 40)


@pytest.mark.parametrize("shared", [False, True], ids=["", "shared"])
@pytest.mark.parametrize("changes", [{}, {"window": 4096}, {"window": 7, "softcap": 5.0}, {"heads": 7, "key_heads": 1}])
def test_a_right_kernel_passes(changes: dict[str, Any], shared: bool) -> None:
    found = check(Kernel(), ASKED._replace(**changes, shared=shared), 0.25)
    assert found.reason is None
    assert all(0 < found.errors[name] < allowed for name, allowed in found.allowed.items())


class NoGradient(torch.autograd.Function):
    """Gives zero for the gradient of one of the three, as cudnn-frontend once did."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 0


class Lost(Kernel):
    def __init__(self, which: int) -> None:
        super().__init__()
        self.which = which

    def attend(self, *args: Any) -> Tensor:
        first = list(args)
        first[self.which] = NoGradient.apply(first[self.which])
        return super().attend(*first)


class Leaking(Kernel):
    """Two documents in one segment."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, *rest: Any) -> Tensor:
        *how, plan, keys = rest
        merged = Segments(ends, plan.longest * 2, (plan.lengths[0], sum(plan.lengths[1:3]), *plan.lengths[3:]))
        return super().attend(q, k, v, ends, plan.longest * 2, *how[1:], merged, keys)


class TopLeft(Kernel):
    """Aligned at the first query and key: right for documents that share nothing."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, *rest: Any) -> Tensor:
        *how, plan, keys = rest
        if keys is not None:
            at = [torch.arange(n) + start for n, start in zip(ends.diff(), keys.boundaries_S1, strict=False)]
            k, v = k[torch.cat(at)], v[torch.cat(at)]
        return super().attend(q, k, v, ends, *how, replace(plan, gathered=None))


class WindowFromTheTrunk(Kernel):
    """A window that is right where keys are as many as queries, and leaves a token out elsewhere."""

    def attend(self, *args: Any) -> Tensor:
        *first, window, softcap, plan, keys = args
        return super().attend(*first, window if keys is None else window - 1, softcap, plan, keys)


class Touching(Kernel):
    """Off by a bit, up or down by the sign of something in the third document, which is changed."""

    def attend(self, q: Tensor, *args: Any) -> Tensor:
        out = super().attend(q, *args)
        factor = torch.ones_like(out)
        if len(q) > 300:
            factor[0] += 2**-7 * q.detach()[100].sum().sign()
        return out * factor


def one_document(out: Tensor, *_: Any) -> Tensor:
    """The shortest alone: far below what all together are allowed."""
    return torch.cat([out[:1] * 0.8, out[1:]]) if len(out) > 300 else out


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Kernel(lambda out, *_: out * 1.05), "its output is off by"),
        (Kernel(lambda out, *_: out * float("nan")), "is not finite"),
        (Kernel(lambda out, q, k, v: out + (k.sum() * float("nan") if k[..., 0].max() < -50 else 0)), "near -120"),
        (Kernel(lambda out, *_: out[:-1]), "it fails here (RuntimeError"),
        (Kernel(lambda out, *_: 1 / 0), "it fails here (ZeroDivisionError"),
        (Lost(0), "gradient of queries is off by 1.0e+00"),
        (Lost(1), "gradient of keys is off by 1.0e+00"),
        (Lost(2), "gradient of values is off by 1.0e+00"),
        (Leaking(), "is off by"),
    ],
    ids=["scaled", "nan", "nan far below zero", "shape", "raises", "no dq", "no dk", "no dv", "leaks"],
)
def test_a_wrong_one_does_not(kernel: Kernel, words: str) -> None:
    assert words in str(check(kernel, ASKED, 0.25).reason)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(TopLeft(), "is off by"), (WindowFromTheTrunk(), "is off by"), (Lost(1), "gradient of keys is off by 1.0e+00")],
    ids=["top left", "window", "no dk"],
)
def test_one_that_is_wrong_behind_a_shared_beginning_does_not(kernel: Kernel, words: str) -> None:
    asked = ASKED._replace(window=20)
    assert words in str(check(kernel, asked._replace(shared=True), 0.25).reason)
    if not isinstance(kernel, Lost):
        assert check(kernel, asked, 0.25).reason is None  # the ordinary check cannot see it


def test_documents_that_see_each_other_behind_shared_beginnings_are_found() -> None:
    """The spoiled kernel moves by a sign that a change leaves as it is half of the times."""
    asked = ASKED._replace(shared=True)
    reasons = [check(Touching(), asked, 0.25, seed=seed).reason for seed in range(5, 10)]
    assert any("changes when another document does" in str(reason) for reason in reasons)
    assert [check(Kernel(), asked, 0.25, seed=seed).reason for seed in range(5, 7)] == [None, None]


def test_one_document_among_many_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_check, "SLACK", 1e9)
    assert "in a document of 1 tokens" in str(check(Kernel(one_document), ASKED, 0.25).reason)


def test_documents_that_see_each_other_a_little_are_found() -> None:
    """A difference that all tolerances let pass: bits are compared."""
    assert check(Kernel(), ASKED, 0.25, seed=3).reason is None
    assert "changes when another document does" in str(check(Touching(), ASKED, 0.25, seed=3).reason)


def test_each_time_other_documents_and_the_random_state_stays() -> None:
    before = torch.get_rng_state()
    one, other, again = check(Kernel(), ASKED, 0.25), check(Kernel(), ASKED, 0.25), check(Kernel(), ASKED, 0.25, seed=7)
    assert one.seed != other.seed
    assert one.errors != other.errors
    assert again == check(Kernel(), ASKED, 0.25, seed=7)
    assert torch.equal(before, torch.get_rng_state())


def test_results_of_other_shapes_are_told_apart() -> None:
    asked = [ASKED._replace(**{field: 8}) for field in ("heads", "key_heads", "head_dim", "window", "softcap")]
    others = [ASKED._replace(dtype=torch.float16), ASKED._replace(shared=True)]
    names = {name_of(one, 0.25) for one in [ASKED, *asked, *others]}
    assert len(names) == 8
    assert name_of(ASKED, 0.25) != name_of(ASKED, 0.5)


def test_lengths_stand_around_the_sizes_of_tiles() -> None:
    assert {0, 1, 63, 64, 65, 127, 128, 129} < set(LENGTHS)
    assert max(LENGTHS) > 1000
    assert len(TRUNKS) == len(LENGTHS)
    assert {0, 64, 300} < set(TRUNKS)
