"""Promise: what was chosen is put in, one a slot; taken out, the model is as it was, and the next one has its place."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynotune.errors import ConfigError
from dynotune.speedups.choose import conflict
from dynotune.speedups.contract import No, Order, Setting
from dynotune.speedups.installed import Installed
from tests.speedups.registries import Registry, registries
from tests.speedups.toys import A_SITE, Toy, decided


def installed(*toys: Toy) -> Installed:
    return Installed(decided(*toys), A_SITE)


def holds_together(one: Installed, registry: Registry) -> None:
    """What must be true of whatever stands."""
    names = [decision.name for decision in one]
    assert names == registry.standing
    for name in names:
        toy = registry.toys[name]
        assert registry.can(name)
        assert set(toy.requires) <= set(names)
        assert not any(conflict(toy, registry.toys[other]) for other in names if other != name)
    for decision in one.decisions:
        assert (decision.no is None) == (decision.name in names) == (decision.installed is not None)
        if decision.behind is not None:
            assert decision.behind.name in names


@given(registries())
def test_of_any_registry_what_stands_holds_together_and_goes_away_again(registry: Registry) -> None:
    on = {name for name in registry.toys if registry.setting(name) == "on"}
    try:
        one = installed(*registry.toys.values())
    except ConfigError:
        needed = registry.with_needs(on)
        assert not (needed <= set(registry.toys) and registry.together(needed)), "what is on could be, and is refused"
        assert registry.standing == [], "something was left behind"
        return
    assert on <= set(registry.standing)
    holds_together(one, registry)
    one.close()
    assert registry.standing == []
    one.close()


@given(registries(), st.data())
def test_of_any_registry_one_can_be_taken_out_and_the_rest_holds_together(
    registry: Registry, data: st.DataObject
) -> None:
    for toy in registry.toys.values():  # what is `on` is never taken out: the run stops
        toy.asks = None if toy.asks is None or toy.asks[0] == "on" else toy.asks
    one = installed(*registry.toys.values())
    while registry.standing:
        before = set(registry.standing)
        gone = one.get(data.draw(st.sampled_from(registry.standing)))
        assert gone is not None
        changed = one.remove(gone, No("it was not seen to run"))
        holds_together(one, registry)
        assert gone.name not in registry.standing
        assert {other.name for other in changed} == before ^ set(registry.standing)
        assert gone.no == No("it was not seen to run")
    one.close()


def test_everything_goes_out_the_last_first() -> None:
    out: list[str] = []
    standing = _Watched(out)
    toys = [Toy("a", standing, order=Order.STEP), Toy("b", standing, order=Order.LORA), Toy("c", standing)]
    one = installed(*toys)
    assert [decision.name for decision in one] == ["c", "b", "a"]
    one.close()
    assert out == ["a", "b", "c"]


class _Watched(list[str]):
    """Who stands, which writes down who goes."""

    def __init__(self, out: list[str]) -> None:
        super().__init__()
        self.out = out

    def remove(self, name: str) -> None:
        super().remove(name)
        self.out.append(name)


def test_where_the_first_of_a_slot_cannot_be_put_in_the_next_one_is() -> None:
    standing: list[str] = []
    one = installed(
        Toy("a", standing, slot="s", rank=0, fails=RuntimeError("no kernel image is available\nfor this device")),
        Toy("b", standing, slot="s", rank=1, fails=No("gradients differ by 3 %")),
        Toy("c", standing, slot="s", rank=2),
    )
    assert standing == ["c"]
    why = {decision.name: decision.no.reason if decision.no else None for decision in one.decisions}
    assert why == {
        "a": "it failed to install (RuntimeError: no kernel image is available), and is left out of later runs of its kind"
        " on this machine",
        "b": "gradients differ by 3 %",
        "c": None,
    }


def test_taking_one_out_puts_the_next_of_its_slot_in_and_takes_out_what_needed_it() -> None:
    standing: list[str] = []
    one = installed(
        Toy("a", standing, slot="s"), Toy("b", standing, slot="s", rank=1),
        Toy("c", standing, requires=("a",)), Toy("d", standing, requires=("c",)), Toy("e", standing),
    )  # fmt: skip
    assert standing == ["a", "c", "d", "e"]
    gone = one.get("a")
    assert gone is not None
    changed = one.remove(gone, No("it was not seen to run"))
    assert standing == ["e", "b"]
    assert {decision.name for decision in changed} == {"a", "b", "c", "d"}


def test_one_that_could_not_be_beside_it_comes_in_where_the_winner_fails() -> None:
    standing: list[str] = []
    installed(
        Toy("compiled", standing, order=Order.COMPILE, conflicts=("kernel",), fails=No("a graph break")),
        Toy("kernel", standing, rank=1),
    )
    assert standing == ["kernel"]


def test_what_would_run_instead_is_there_for_a_comparison_and_gone_behind_it() -> None:
    standing: list[str] = []
    one = installed(
        Toy("compiled", standing, order=Order.COMPILE, conflicts=("kernel", "other"), asks=("on", "c: on")),
        Toy("kernel", standing, slot="s"),
        Toy("second", standing, slot="s", rank=1, conflicts=("compiled",)),
        Toy("other", standing, fails=OSError("no such symbol")),
        Toy("beside", standing),
    )
    assert standing == ["beside", "compiled"]
    winner = one.get("compiled")
    assert winner is not None
    with one.instead(winner):
        assert standing == ["beside", "compiled", "kernel"]  # a toy that is aside stays in its list
    assert standing == ["beside", "compiled"]


def test_what_is_on_and_fails_ends_with_an_error_and_leaves_nothing() -> None:
    standing: list[str] = []
    with pytest.raises(ConfigError, match=r"`k: on`: b cannot run: it failed to install \(OSError: no such symbol\)"):
        installed(Toy("a", standing), Toy("b", standing, asks=("on", "k: on"), fails=OSError("no such symbol")))
    assert standing == []


def test_what_is_auto_and_fails_to_install_is_remembered_and_its_remedy_said() -> None:
    kept: list[tuple[str, str]] = []
    toys = [
        Toy("a", fails=RuntimeError("undefined symbol")),
        Toy("b", fails=OSError(28, "No space left on device")),
        Toy("c", fails=RuntimeError("CUDNN_STATUS_ALLOC_FAILED")),
        Toy("d", fails=No("gradients differ")),
        Toy("e"),
    ]
    one = Installed(decided(*toys), A_SITE, remember=lambda speedup, reason: kept.append((speedup.name, reason)))
    assert kept == [("a", "it failed to install (RuntimeError: undefined symbol)")]
    said = {line.split()[1]: line for line in one.lines()}
    assert (
        "left out of later runs of its kind on this machine. To have it, run `dynotune engaged --forget a`" in said["a"]
    )
    for name in ("b", "c"):
        assert "it failed to install" in said[name]
        assert "later runs" not in said[name]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), torch.AcceleratorError("CUDA error")])
def test_what_the_device_itself_cannot_do_is_not_remembered_of_a_speed_up(error: Exception) -> None:
    kept: list[str] = []
    with pytest.raises(type(error)):
        Installed(decided(Toy("a", fails=error)), A_SITE, remember=lambda speedup, reason: kept.append(reason))
    assert kept == []


def test_what_is_on_and_fails_to_install_is_not_remembered() -> None:
    """Whoever asks for it by name has it tried whenever they do."""
    kept: list[str] = []
    toy = Toy("a", asks=("on", "k: on"), fails=RuntimeError("undefined symbol"))
    with pytest.raises(ConfigError):
        Installed(decided(toy), A_SITE, remember=lambda speedup, reason: kept.append(reason))
    assert kept == []


def test_an_error_of_our_own_is_not_taken_for_a_package_that_does_not_fit() -> None:
    standing: list[str] = []
    with pytest.raises(AssertionError):
        installed(Toy("a", standing), Toy("b", standing, fails=AssertionError("ours")))
    assert standing == []


def test_what_one_rank_cannot_do_none_does() -> None:
    """`agree` gives what another rank said: what was put in here goes out again."""
    standing: list[str] = []
    toys = [Toy("a", standing, slot="s"), Toy("b", standing, slot="s", rank=1)]
    asked: list[No | None] = []

    def agree(mine: No | None) -> No | None:
        asked.append(mine)
        return No("it does not run (rank 1)") if len(asked) == 1 else mine

    one = Installed(decided(*toys), A_SITE, agree)
    assert asked == [None, None]
    assert standing == ["b"]
    assert [decision.no.reason if decision.no else None for decision in one.decisions] == [
        "it does not run (rank 1)", None,
    ]  # fmt: skip


def layout(standing: list[str], asks: tuple[Setting, str] | None = None) -> Toy:
    return Toy("layout", standing, order=Order.LAYOUT, gains_with="s", asks=asks)


def test_a_layout_goes_where_no_kernel_that_it_is_for_could_be_put_in() -> None:
    standing: list[str] = []
    late = Toy("late", standing, order=Order.EXECUTION)
    one = installed(layout(standing), Toy("kernel", standing, slot="s", fails=No("it is wrong here")), late)
    assert standing == ["late"]
    assert "note: layout does not run: there is no s" in one.lines()


def test_a_layout_stays_where_its_kernel_stands_or_it_was_demanded() -> None:
    """The controls."""
    standing: list[str] = []
    installed(layout(standing), Toy("kernel", standing, slot="s"))
    assert standing == ["layout", "kernel"]
    standing.clear()
    installed(layout(standing, ("on", "k: on")), Toy("kernel", standing, slot="s", fails=No("it is wrong here")))
    assert standing == ["layout"]


def test_a_kernel_that_could_not_be_beside_a_layout_comes_in_where_that_goes() -> None:
    standing: list[str] = []
    kernels = [
        Toy("a", standing, slot="s", never_beside="layout"),
        Toy("b", standing, slot="s", rank=1, fails=No("it is wrong here")),
    ]
    one = installed(layout(standing), *kernels)
    assert standing == ["a"]
    assert not [line for line in one.lines() if line.startswith("note: a ")]
    standing.clear()
    installed(layout(standing), kernels[0], Toy("b", standing, slot="s", rank=1))
    assert standing == ["layout", "b"], "another kernel can be beside it"


def test_a_layout_stays_in_a_run_whose_kernel_is_taken_out_later() -> None:
    """Its steps are laid out by then."""
    standing: list[str] = []
    one = installed(layout(standing), Toy("kernel", standing, slot="s"))
    gone = one.get("kernel")
    assert gone is not None
    one.remove(gone, No("it was not seen to run"))
    assert standing == ["layout"]
