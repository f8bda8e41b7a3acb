"""Speed-ups that have run on one GPU only: on several they are taken where they are asked for by name."""

from dynotune.speedups.contract import Context, No


def untried_on_several(context: Context, name: str) -> No | None:
    """Why `name` is not taken in a run of several processes; None in one of one, and where the configuration says `on`."""
    if context.plan is None or context.plan.world == 1 or context.config.speedups.get(name) == "on":
        return None
    return No("it has run on one GPU only so far", f"write `speedups: {{{name}: on}}`", expected=True)
