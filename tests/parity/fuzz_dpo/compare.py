"""What differs between the two sides of a case, and which of it is stated."""

import math
from collections.abc import Sequence
from itertools import chain

from tests.parity.fuzz_dpo.both import Side
from tests.parity.fuzz_dpo.draw import Case

OF_PAIRS = (
    "rewards/chosen",
    "rewards/rejected",
    "rewards/accuracies",
    "rewards/margins",
    "logps/chosen",
    "logps/rejected",
)
OF_TOKENS = ("entropy", "mean_token_accuracy", "logits/chosen", "logits/rejected")
"""Means over tokens: TRL averages those of batches, ours are over all, so they agree for one batch only."""

UPDATES = 2e-2
"""Distance of the final weights over the way that they went."""

ROUNDING = 20.0
"""A difference of so many times that which a rounding of the first weights makes in TRL is rounding."""

REFUSALS = (
    "has a label token left under",
    "`dataloader_drop_last` leaves nothing",
    "is not finite",
    "`lora_modules_to_save`",
)
"""What ours refuses in words, and TRL runs without learning or evaluating anything, or on with weights that are ruined,
or without what was to be trained beside the adapter."""

Bounds = dict[str, tuple[float, float]]
"""Of each figure the relative bound, and the size below which the difference is measured against that."""


def differences(case: Case, theirs: Side, ours: Side, again: Sequence[Side] = ()) -> list[str]:
    """In words; none where the two agree, and where ours says what is otherwise.

    again: TRL from weights that are a rounding apart, some times.
    """
    if ours.crash is not None:
        return [f"crash: {ours.crash}"] if theirs.refusal is None else []
    if ours.refusal is not None:
        expected = theirs.refusal is not None or any(word in ours.refusal for word in (*case.said, *REFUSALS))
        return [] if expected else [f"refused: {ours.refusal}"]
    if theirs.refusal is not None:
        return [f"TRL failed: {theirs.refusal}"]
    if any(word in ours.told for word in case.said):
        return []
    logged = (value for row in chain(theirs.rows, theirs.evaluations) for value in row.values())
    if not all(math.isfinite(value) for value in logged if isinstance(value, float)):
        return []  # `discopop` and `forward_kl` are finite here: documented
    found = [] if ours.pairs == theirs.pairs else [f"other tokens: {_first_other(theirs, ours)}"]
    if ours.steps != theirs.steps:
        found.append(f"{ours.steps} steps, TRL {theirs.steps}")
    if _counts_what_nothing_predicts(case, theirs):
        return found
    uneven = _first_uneven(case, len(theirs.pairs))
    found += _of_rows(case, theirs, ours, again, uneven)
    found += _of_evaluations(case, theirs, ours, again, uneven)
    if uneven > theirs.steps:
        found += _of_weights(theirs, ours, again)
    return found


def _first_other(theirs: Side, ours: Side) -> str:
    for number, (mine, other) in enumerate(zip(ours.pairs, theirs.pairs, strict=False)):
        if mine != other:
            return f"pair {number}: {mine}, TRL {other}"
    return f"{len(ours.pairs)} pairs, TRL {len(theirs.pairs)}"


def _losses(case: Case) -> set[str]:
    named = case.keys["loss_type"]
    return {named} if isinstance(named, str) else set(named)


def _counts_what_nothing_predicts(case: Case, theirs: Side) -> bool:
    """Whether a loss divides by a length that counts a first label token without any token before it: documented."""
    return bool(_losses(case) & {"ipo", "sigmoid_norm"}) and any(
        side[0][1] for side in chain.from_iterable(theirs.pairs)
    )


def _first_uneven(case: Case, pairs: int) -> int:
    """The first step from which the batches of a logged window differ in size: there TRL counts batches and ours pairs,
    which is documented."""
    size, many = case.keys["per_device_train_batch_size"], case.keys["gradient_accumulation_steps"]
    whole, rest = divmod(pairs, size)
    if not rest or case.keys.get("dataloader_drop_last"):
        return 10**9
    if case.keys.get("logging_steps", 1) != 1:
        return 1
    last = (whole + 1) % many or many  # batches of an epoch's last step
    return 10**9 if last == 1 else -(-(whole + 1) // many)


def _bounds(case: Case, tokens: bool, row: dict[str, float]) -> Bounds:
    # A log-probability of 200 has a rounding of 1.5e-5, which beta times it hands on to the loss.
    size = max((abs(value) for name, value in row.items() if "logps/" in name), default=0.0)
    steep = 1 / case.keys.get("discopop_tau", 0.05) if "discopop" in _losses(case) else 1.0
    loss = 1e-5 + 4e-7 * case.keys.get("beta", 0.1) * size * steep
    figures: Bounds = {"loss": (loss, 1e-2), "grad_norm": (1e-3, 1e-1), "learning_rate": (1e-6, 1e-12)}
    figures |= dict.fromkeys(OF_PAIRS, (1e-3, 1e-1))
    if not tokens:
        return figures
    return figures | dict.fromkeys(OF_TOKENS, (1e-3, 1e-1)) | {"mean_token_accuracy": (5e-2, 1.0)}  # a token or two


def _apart(
    mine: dict[str, float], other: dict[str, float], rounding: dict[str, float], bounds: Bounds, prefix: str = ""
) -> list[str]:
    found = []
    for figure, (bound, floor) in bounds.items():
        name = prefix + figure
        if (name in mine) != (name in other):
            found.append(f"{name} is {mine.get(name)}, TRL {other.get(name)}")
        elif name in other:
            size = max(abs(other[name]), floor)
            allowed = max(bound * size, ROUNDING * rounding.get(name, 0.0))
            if name.endswith("accuracies") and abs(other[name.replace("accuracies", "margins")]) < 1e-3:
                continue  # two rewards that are alike but for rounding
            if not abs(mine[name] - other[name]) <= allowed:
                found.append(f"{name} {mine[name]:.8g}, TRL {other[name]:.8g}")
    return found


def _at(rows: list[dict[str, float]], step: float) -> dict[str, float]:
    return next((row for row in rows if row["step"] == step), {})


def _rounding(theirs: list[dict[str, float]], again: Sequence[list[dict[str, float]]], step: float) -> dict[str, float]:
    """How far each figure of TRL was from itself, at most, up to `step`."""
    far: dict[str, float] = {}
    for row in theirs:
        if row["step"] <= step:
            for others in again:
                for name, value in _at(others, row["step"]).items():
                    far[name] = max(far.get(name, 0.0), abs(value - row.get(name, value)))
    return far


def _of_rows(case: Case, theirs: Side, ours: Side, again: Sequence[Side], uneven: int) -> list[str]:
    steps, mine = [row["step"] for row in theirs.rows], [row["step"] for row in ours.rows]
    if mine not in (steps, [*steps, theirs.steps]):  # steps behind the last line get one of their own here: documented
        return [f"rows of steps {mine}, TRL {steps}"]
    found, before = [], 0.0
    for row in theirs.rows:
        step = row["step"]
        alone = case.keys["gradient_accumulation_steps"] == 1 and step == before + 1
        bounds = _bounds(case, alone, row) if step < uneven else {"learning_rate": (1e-6, 1e-12)}
        far = _rounding(theirs.rows, [side.rows for side in again], step)
        found += [f"step {step}: {one}" for one in _apart(_at(ours.rows, step), row, far, bounds)]
        before = step
    return found


def _of_evaluations(case: Case, theirs: Side, ours: Side, again: Sequence[Side], uneven: int) -> list[str]:
    steps, mine = [row["step"] for row in theirs.evaluations], [row["step"] for row in ours.evaluations]
    if mine != steps:
        return [f"evaluations at {mine}, TRL {steps}"]
    size = case.keys.get("per_device_eval_batch_size", 8)
    if theirs.held_out % size and theirs.held_out > size:
        return []  # TRL averages the means of batches: documented
    found = []
    for row in theirs.evaluations:
        bounds = _bounds(case, theirs.held_out <= size, row) if row["step"] < uneven else {}
        bounds.pop("learning_rate", None)
        bounds.pop("grad_norm", None)
        far = _rounding(theirs.evaluations, [side.evaluations for side in again], row["step"])
        apart = _apart(_at(ours.evaluations, row["step"]), row, far, bounds, "eval_")
        found += [f"evaluation at {row['step']}: {one}" for one in apart]
    return found


def _of_weights(theirs: Side, ours: Side, again: Sequence[Side]) -> list[str]:
    if set(theirs.weights) != set(ours.weights):
        return [f"trained by one side only: {sorted(set(theirs.weights) ^ set(ours.weights))}"]
    way, apart, rounding = 0.0, 0.0, 0.0
    for name, weight in theirs.weights.items():
        if name.endswith("k_proj.bias"):
            continue  # softmax takes it out, so that its gradient is rounding, of which Adam makes whole updates
        way += float((weight - theirs.before[name]).double().square().sum())
        apart += float((weight - ours.weights[name]).double().square().sum())
        for side in again:
            rounding += float((weight - side.weights[name]).double().square().sum())
    share = math.sqrt(apart / way) if way else math.sqrt(apart)
    bound = max(UPDATES, ROUNDING * math.sqrt(rounding / way) if way else 0.0)
    return [f"final weights are {share:.3g} of their way apart"] if share > bound else []
