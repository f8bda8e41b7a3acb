"""Random registries of toys, for hypothesis."""

from dataclasses import dataclass

from hypothesis import strategies as st

from dynotune.speedups.choose import conflict
from dynotune.speedups.contract import No, Order
from tests.speedups.toys import Toy

NAMES = "abcdefg"


@dataclass(frozen=True)
class Registry:
    """Toys that share one list of who stands."""

    toys: dict[str, Toy]
    standing: list[str]

    def setting(self, name: str) -> str:
        asks = self.toys[name].asks
        return asks[0] if asks else "auto"

    def can(self, name: str) -> bool:
        """Whether nothing but others keeps it out."""
        toy = self.toys.get(name)
        return toy is not None and toy.no is None and toy.fails is None and self.setting(name) != "off"

    def with_needs(self, names: set[str]) -> set[str]:
        """These, and all that they need, near and far."""
        every = set(names)
        while more := {need for name in every if name in self.toys for need in self.toys[name].requires} - every:
            every |= more
        return every

    def together(self, names: set[str]) -> bool:
        """Whether these can be, beside each other."""
        toys = [self.toys.get(name) for name in sorted(names)]
        pairs = [(one, other) for i, one in enumerate(toys) for other in toys[i + 1 :]]
        return all(self.can(name) for name in names) and not any(
            one is not None and other is not None and conflict(one, other) for one, other in pairs
        )


def toys(standing: list[str]) -> st.SearchStrategy[dict[str, Toy]]:
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
    no = st.sampled_from([None, None, None, No("it cannot be here")])
    fails = st.sampled_from([None, None, None, No("it could not be put in"), RuntimeError("no kernel image")])
    asks = st.sampled_from([None, None, None, ("auto", "k: auto"), ("on", "k: on"), ("off", "k: off")])

    def toy(name: str) -> st.SearchStrategy[Toy]:
        return st.builds(
            Toy, st.just(name), st.just(standing), order=st.sampled_from(Order), rank=st.integers(0, 2),
            slot=st.sampled_from([None, None, "s", "t"]), requires=names.map(lambda some: tuple(set(some) - {name})),
            conflicts=names.map(lambda some: tuple(set(some) - {name})), asks=asks, no=no, fails=fails,
        )  # fmt: skip

    return st.lists(st.sampled_from(NAMES), min_size=1, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: toy(name) for name in chosen})
    )


@st.composite
def registries(draw: st.DrawFn) -> Registry:
    standing: list[str] = []
    return Registry(draw(toys(standing)), standing)
