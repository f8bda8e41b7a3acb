"""Whether a kernel computes attention and its gradients here: on fresh random documents, against float64.

What a package promises and what it does on this GPU, with these versions, for these heads are two things: gradients of
zero, of the wrong sign and not a number have all been shipped. So each kernel is checked once before it is used.

Legend of shapes: T tokens of the row, R rows of keys (T unless documents share a beginning), S segments, H heads, K key and
value heads, D head dimension, n tokens of a document.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dynotune.foreign import FOREIGN, in_a_line
from dynotune.model.attention.backends import Asked, Kernel, reference
from dynotune.model.attention.segments import Segments, segments_of, segments_with_keys

LENGTHS = (1, 63, 64, 65, 0, 127, 128, 129, 1100, 2)
"""Tokens of documents: around the sizes of tiles, an empty one, a long one."""

COLD = (64, 1, 129, 192)
"""The same where every score is about -120: a padded row or column that a kernel forgets then outweighs all others. cuDNN
did (pytorch issue 196678, cudnn-frontend issue 1072)."""

TRUNKS = (0, 5, 64, 200, 0, 0, 1, 130, 63, 300)
"""Where documents share a beginning: keys before the own ones of each of `LENGTHS`. Queries and keys then end in other
places of a tile, a window ends before, in and behind the trunk, and some documents have none."""

CHANGED = (2, 8)
"""Documents of `LENGTHS` that are changed to see whether others notice."""

LONGEST_WINDOW = 300
"""A longer window is checked at this length: what matters is that documents cross it."""

SLACK = 1.5
"""Error in multiples of what the plain path's attention has in the same precision (promise P2)."""

GROSS = 0.1
"""Error of one document by itself, in parts of its size: one that is wrong must not be lost among longer ones."""

NAMES = ("output", "gradient of queries", "gradient of keys", "gradient of values")

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Check:
    """What came of it."""

    reason: str | None
    """Why the kernel is not to be used, as the end of a sentence; None where it is right."""

    errors: Mapping[str, float] = field(default_factory=dict)
    """Relative L2 distance from float64, by what was compared."""

    allowed: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    """With it the same documents are drawn again."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check(kernel: Kernel, asked: Asked, scaling: float, seed: int | None = None) -> Check:
    """Try `kernel` on calls like `asked`. Waits for the device; takes the memory of 2,500 keys' attention in float64.

    seed: default: another one each time. The run's random state stays as it is.
    """
    seed = secrets.randbits(31) if seed is None else seed
    if asked.window is not None:
        asked = asked._replace(window=min(asked.window, LONGEST_WINDOW))
    trial = _Trial(kernel, asked, scaling, torch.Generator().manual_seed(seed))
    try:
        with torch.enable_grad(), torch.autocast(asked.device.type, enabled=False):
            found = trial.warm()
            reason = found.reason or trial.cold()
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except FOREIGN as error:
        return Check(f"it fails here ({in_a_line(error)})", seed=seed)
    return Check(reason, found.errors, found.allowed, seed)


def name_of(asked: Asked, scaling: float) -> str:
    """In a line all on which a result depends, besides the machine and the kernel."""
    heads = f"{asked.heads}/{asked.key_heads} heads of {asked.head_dim}"
    dtype = str(asked.dtype).removeprefix("torch.")
    said = f"{dtype}, {heads}, window {asked.window}, soft-cap {asked.softcap}, scaling {scaling:.6g}"
    return f"{said}, shared beginnings" if asked.shared else said


@dataclass(frozen=True, slots=True)
class _Trial:
    kernel: Kernel
    asked: Asked
    scaling: float
    generator: torch.Generator

    def warm(self) -> Check:
        """Errors on ordinary documents, all of them together and each by itself, and whether they see each other."""
        segments = self.segments(LENGTHS)
        inputs, cotangent = self.random(segments), self.random(segments)[0]
        ours = _with_gradients(lambda q, k, v: self.attend(q, k, v, segments), inputs, cotangent)
        right = self.exactly(inputs, cotangent, segments)
        plain = _with_gradients(lambda q, k, v: self.reference(q, k, v, segments), inputs, cotangent)
        errors = {name: _distance(a, b) for name, a, b in zip(NAMES, ours, right, strict=True)}
        allowed = {name: SLACK * _distance(a, b) for name, a, b in zip(NAMES, plain, right, strict=True)}
        reason = self.not_finite(ours, "") or self.too_far(errors, allowed) or self.one_wrong(ours, right, segments)
        return Check(reason or self.not_isolated(inputs, ours[0], segments), errors, allowed)

    def cold(self) -> str | None:
        """Why not, by documents all of whose scores are far below zero."""
        segments = self.segments(COLD)
        query, key, value = self.random(segments)
        query, key = query * 0.1, key * 0.1
        query[..., 0], key[..., 0] = 1.0, -120.0 / self.scaling
        ours = _with_gradients(
            lambda q, k, v: self.attend(q, k, v, segments), [query, key, value], self.random(segments)[0]
        )
        right = self.reference(query.double(), key.double(), value.double(), segments)
        if (
            not (reason := self.not_finite(ours, " where all scores are near -120"))
            and _distance(ours[0], right) > GROSS
        ):
            return f"its output is wrong by {_distance(ours[0], right):.1e} of its size where all scores are near -120"
        return reason

    def random(self, segments: Segments) -> list[Tensor]:
        """Query [T, H, D], key [R, K, D] and value [R, K, D], in the precision that is asked for."""
        asked = self.asked
        shapes = [(asked.heads, asked.head_dim), (asked.key_heads, asked.head_dim), (asked.key_heads, asked.value_dim)]
        rows = sum(segments.lengths), sum(_key_lengths(segments)), sum(_key_lengths(segments))
        drawn = [torch.randn(n, *shape, generator=self.generator) for n, shape in zip(rows, shapes, strict=True)]
        return [x.to(asked.device, asked.dtype) for x in drawn]

    def segments(self, lengths: Sequence[int]) -> Segments:
        ends = torch.tensor([0, *lengths]).cumsum(0).int().to(self.asked.device)
        if not self.asked.shared:
            return segments_of(ends, lengths)
        key_lengths = [n and n + trunk for n, trunk in zip(lengths, TRUNKS, strict=False)]
        key_ends = torch.tensor([0, *key_lengths]).cumsum(0).int().to(self.asked.device)
        drawn_as_they_are = torch.arange(sum(key_lengths), device=self.asked.device)
        return segments_with_keys(ends, lengths, drawn_as_they_are, key_ends, key_lengths)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
        asked = self.asked
        plan = self.kernel.prepare(segments, nn.Module())
        ends, longest = segments.boundaries_S1, segments.longest
        rest = self.scaling, asked.window, asked.softcap, plan, segments.keys
        return self.kernel.attend(query, key, value, ends, longest, *rest)

    def reference(self, query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> Tensor:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        how = self.scaling, self.asked.window, self.asked.softcap, _key_lengths(segments)
        return reference.attend(query, key, value, segments.lengths, *how)

    def exactly(self, inputs: list[Tensor], cotangent: Tensor, segments: Segments) -> list[Tensor]:
        """As `_with_gradients`, in float64, one key head and those that share it at a time: all at once take gigabytes."""
        query, key, value = (x.double() for x in inputs)
        shared = self.asked.heads // self.asked.key_heads
        parts = []
        for i in range(self.asked.key_heads):
            few = slice(i * shared, (i + 1) * shared)
            part = [query[:, few], key[:, i : i + 1], value[:, i : i + 1]]
            parts.append(
                _with_gradients(lambda q, k, v: self.reference(q, k, v, segments), part, cotangent[:, few].double())
            )
        return [torch.cat(of_heads, dim=1) for of_heads in zip(*parts, strict=True)]

    def not_finite(self, ours: list[Tensor], where: str) -> str | None:
        bad = [name for name, x in zip(NAMES, ours, strict=True) if not bool(x.isfinite().all())]
        return f"its {' and '.join(bad)} is not finite{where}" if bad else None

    def too_far(self, errors: Mapping[str, float], allowed: Mapping[str, float]) -> str | None:
        for name, error in errors.items():
            if not error <= allowed[name]:
                return f"its {name} is off by {error:.1e} of its size, and {allowed[name]:.1e} is allowed"
        return None

    def one_wrong(self, ours: list[Tensor], right: list[Tensor], segments: Segments) -> str | None:
        of_queries, of_keys = segments.lengths, _key_lengths(segments)
        rows = of_queries, of_queries, of_keys, of_keys
        for name, a, b, lengths in zip(NAMES, ours, right, rows, strict=True):
            usual = float(b.pow(2).mean().sqrt())
            for document, exact in zip(a.double().split(lengths), b.split(lengths), strict=True):
                size = max(float(exact.norm()), usual * exact.numel() ** 0.5)
                error = float((document - exact).norm())
                if not error <= GROSS * size:
                    return f"its {name} is off by {error / size:.1e} of its size in a document of {len(exact)} tokens"
        return None

    def not_isolated(self, inputs: list[Tensor], before: Tensor, segments: Segments) -> str | None:
        others = self.random(segments)
        inside_T, inside_R = (self.changed(ends) for ends in _boundaries(segments))
        rows = inside_T, inside_R, inside_R
        mixed = [torch.where(inside[:, None, None], b, a) for a, b, inside in zip(inputs, others, rows, strict=True)]
        with torch.no_grad():
            after = self.attend(mixed[0], mixed[1], mixed[2], segments)
        if not torch.equal(before[~inside_T], after[~inside_T]):
            return "a document's output changes when another document does"
        return None if not torch.equal(before, after) else "its output does not depend on its input"

    def changed(self, boundaries_S1: Tensor) -> Tensor:
        """Which rows, by their segments' boundaries, belong to the documents that are changed: bool."""
        starts, ends = boundaries_S1.cpu()[:-1], boundaries_S1.cpu()[1:]
        inside = torch.zeros(int(ends[-1]), dtype=torch.bool)
        for i in CHANGED:
            inside[starts[i] : ends[i]] = True
        return inside.to(self.asked.device)


def _key_lengths(segments: Segments) -> tuple[int, ...]:
    return segments.lengths if segments.gathered is None else segments.gathered.lengths


def _boundaries(segments: Segments) -> tuple[Tensor, Tensor]:
    """Of queries and of keys."""
    own = segments.boundaries_S1
    return own, own if segments.keys is None else segments.keys.boundaries_S1


def _with_gradients(attend: Attend, inputs: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    """Output, and the gradients of the three inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = attend(*leaves)
    gradients = torch.autograd.grad(out, leaves, cotangent.to(out.dtype))
    return [out.detach(), *gradients]


def _distance(ours: Tensor, right: Tensor) -> float:
    """Relative L2 distance; NaN where there is one."""
    return float((ours.double() - right.double()).norm() / right.double().norm())
