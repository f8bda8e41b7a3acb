"""What differs between the two sides of a draw, and which of it is stated."""

from dynotune.errors import DynotuneError
from tests.parity.fuzz.both import Outcome
from tests.parity.fuzz.draw import Draw

TOLERANCES = {"learning_rate": 1e-7, "loss": 1e-5, "grad_norm": 1e-3, "epoch": 1e-5}
LEAST = {"learning_rate": 1e-9, "loss": 1e-3, "grad_norm": 1e-3, "epoch": 1.0}
"""Below such a size of a value the difference is measured against it."""

IN_BFLOAT16 = {"learning_rate": 1e-7, "loss": 2e-2, "grad_norm": 0.2, "epoch": 1e-5}
UPDATES = {"sgd": 0.05}
"""Distance of the final weights over the way that they went, by optimizer."""

SIGNS = 0.7
"""The same of all others: their first updates are signs, and flip on rounding where a gradient is little else (a bias of
keys, which softmax does not see; queries of few tokens)."""

REFUSALS = ("has a label token left under", "`dataloader_drop_last` leaves nothing", "the model has a table of")
"""What Dynotune refuses in words and TRL runs: without learning anything, or as long as no step holds the document."""


def differences(d: Draw, theirs: Outcome, ours: Outcome) -> list[str]:
    """In words; none where both are alike, and where both refuse."""
    if ours.error is not None:
        if not isinstance(ours.error, DynotuneError) and (theirs.error is None or str(theirs.error) != str(ours.error)):
            return [f"traceback: {ours.error!r}"]
        if theirs.error is None and not any(words in str(ours.error) for words in REFUSALS):
            return [f"refused: {ours.error}"]
        return []
    if theirs.error is not None:
        return []  # what TRL fails at may work here
    found = [*_of_examples(d, theirs, ours), *_of_steps(d, theirs, ours)]
    if not d.settings["bf16"]:
        found += _of_weights(theirs, ours, UPDATES.get(d.settings.get("optim", ""), SIGNS))
    return found


def _of_examples(d: Draw, theirs: Outcome, ours: Outcome) -> list[str]:
    found = []
    if len(theirs.examples) != len(ours.examples):
        found.append(f"{len(theirs.examples)} examples, ours {len(ours.examples)}")
    for i, (a, b) in enumerate(zip(theirs.examples, ours.examples, strict=False)):
        if a[0] != b[0]:
            return [*found, f"ids of example {i}: {a[0]} ours {b[0]}"]
        if a[1][1:] != b[1][1:]:  # a label on the first token carries no loss
            return [*found, f"labels of example {i}: {a[0]}: {a[1]} ours {b[1]}"]
    dropped = len(d.rows) - len(theirs.examples)
    if dropped > 0 and "packing" not in d.settings and not d.mixture and "no label token left" not in ours.said:
        found.append(f"{dropped} rows are left out, and nothing says so")
    return found


def _of_steps(d: Draw, theirs: Outcome, ours: Outcome) -> list[str]:
    found = []
    if theirs.steps != ours.steps:
        found.append(f"{theirs.steps} steps, ours {ours.steps}")
    rows = ours.rows
    if len(rows) == len(theirs.rows) + 1 and rows[-1]["step"] == ours.steps:
        rows = rows[:-1]  # steps since the last log line get one at the end of a run
    logged, evaluated = [row["step"] for row in theirs.rows], [row["step"] for row in theirs.evaluations]
    if logged != [row["step"] for row in rows]:
        return [*found, f"logged at {logged}, ours at {[row['step'] for row in rows]}"]
    for key, tolerance in (IN_BFLOAT16 if d.settings["bf16"] else TOLERANCES).items():
        if key == "loss" and "label_smoothing_factor" in d.settings and "hold no label token" in ours.said:
            continue  # TRL divides by 0 there, and logs the mean of other steps
        a, b = [row[key] for row in theirs.rows], [row[key] for row in rows]
        if not all(abs(x - y) <= tolerance * max(abs(x), LEAST[key]) for x, y in zip(a, b, strict=True)):
            found.append(f"{key}: {a} ours {b}")
    if evaluated != [row["step"] for row in ours.evaluations]:
        return [*found, f"evaluated at {evaluated}, ours at {[row['step'] for row in ours.evaluations]}"]
    losses = [(x["eval_loss"], y["eval_loss"]) for x, y in zip(theirs.evaluations, ours.evaluations, strict=True)]
    tolerance = IN_BFLOAT16["loss"] if d.settings["bf16"] else 2 * TOLERANCES["loss"]
    if not all(abs(x - y) <= tolerance * abs(x) for x, y in losses):
        found.append(f"eval_loss, theirs and ours: {losses}")
    if len(theirs.checkpoints) != len(ours.checkpoints):
        found.append(f"checkpoints {theirs.checkpoints}, ours {ours.checkpoints}")
    return found


def _of_weights(theirs: Outcome, ours: Outcome, most: float) -> list[str]:
    if theirs.weights.keys() != ours.weights.keys():
        return [f"parameters of one side: {sorted(theirs.weights.keys() ^ ours.weights.keys())[:6]}"]
    found = []
    apart = {name: float((ours.before[name] - p).abs().max()) for name, p in theirs.before.items()}
    if any(apart.values()):
        worst = max(apart, key=lambda name: apart[name])
        found.append(f"{worst} starts {apart[worst]} apart")
    way = sum(float((p - theirs.before[name]).square().sum()) for name, p in theirs.weights.items()) ** 0.5
    distance = sum(float((p - ours.weights[name]).square().sum()) for name, p in theirs.weights.items()) ** 0.5
    if distance > most * way + 1e-7:
        found.append(f"weights went {way} and are {distance} apart")
    return found
