"""Promise: who reads when training went on may do so while another thread trains."""

from dynotune.measure.beside.pauses import Pauses


def test_a_pause_that_ends_while_it_is_looked_at_is_still_one() -> None:
    """Its beginning, as read a second time, would be None: a comparison with that raises."""

    class Ending(Pauses):
        looks = 0

        @property
        def _open(self) -> float | None:  # type: ignore[override]
            self.looks += 1
            return 5.0 if self.looks == 1 else None

        @_open.setter
        def _open(self, at: float | None) -> None:
            pass

    pauses = Ending()
    pauses.warm(0.0)
    assert not pauses.trained(4.0, 6.0)
    assert pauses.trained(6.0, 7.0), "the control: nothing is open then"
