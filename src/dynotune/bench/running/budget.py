"""Whether a budget has room for what comes next, and what it was spent on where it has none."""

from collections.abc import Mapping

from dynotune.bench.asking.schedule import Rules

GATE, MEMORY, WARM_UP = "the parity gate", "peak memory", "warm-up"
"""What GPU seconds are spent on before the first round."""


def spent_by(rules: Rules, on: Mapping[str, float], before: str, needs: float = 0.0) -> str:
    """Why nothing further begins, as the end of a sentence; empty where there is room, or no budget.

    on: GPU seconds by what they were spent on. before: what did not begin. needs: what it would take, where that can be
    foreseen: what a gate or a warm-up takes is known behind it.
    """
    spent = sum(on.values())
    if rules.budget_seconds is None or spent + needs < rules.budget_seconds:
        return ""
    parts = [f"{what} ({seconds:.{0 if seconds >= 10 else 1}f} s)" for what, seconds in on.items() if seconds > 0]
    told = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    if spent < rules.budget_seconds:
        room = f"has no room for {before}, which would need about {needs:,.0f}"
        return f"the budget of {rules.budget_seconds:,g} {rules.unit} {room}: {spent:,.0f} were spent by {told}"
    return f"the budget of {rules.budget_seconds:,g} {rules.unit} was spent by {told} before {before}"
