"""Promise: peaks are of the phase in which they were, none is missed over all, and looking costs little."""

from dynotune.measure.device_memory import BUDGET, FIRST_STEPS, GIB, Allocator, PhasePeaks


class Device:
    """An allocator that is told what is allocated."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.reads = 0
        self.reserved = self.most_reserved = 80 * GIB
        self.retries = 5

    def allocate(self, size: int) -> None:
        self.now = size
        self.peak = max(self.peak, size)

    def read(self) -> Allocator:
        self.reads += 1
        return Allocator(self.now, self.peak, self.reserved, 8 * GIB, self.retries, 0, self.most_reserved)

    def reset(self) -> None:
        self.peak, self.most_reserved = self.now, self.reserved


def step(peaks: PhasePeaks, device: Device, largest: int, sizes: dict[str, int]) -> None:
    peaks.step(largest)
    for phase, size in sizes.items():
        peaks.begin(phase)
        device.allocate(size * GIB)
        device.allocate(GIB)


def test_each_phase_has_its_own_peak_and_the_whole_misses_none() -> None:
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    step(peaks, device, 1024, {"forward": 20, "backward": 40, "optimizer": 30})
    step(peaks, device, 1024, {"forward": 25, "backward": 35, "optimizer": 30})
    peaks.seconds = 1e9  # nothing more may be spent
    for _ in range(FIRST_STEPS):
        step(peaks, device, 1024, {"forward": 10, "backward": 10, "optimizer": 10})
    step(peaks, device, 1024, {"forward": 60, "backward": 10, "optimizer": 10})
    figures = peaks.figures(used=None)
    assert figures["memory/peak_forward_gib"] == 25, "of steps that were looked at"
    assert (figures["memory/peak_backward_gib"], figures["memory/peak_optimizer_gib"]) == (40, 30)
    assert figures["peak_memory_gib"] == 60
    assert figures["memory/headroom_gib"] == 40
    assert (figures["memory/allocated_gib"], figures["memory/fragmentation"], figures["memory/retries"]) == (1, 0.1, 0)


def test_what_others_hold_is_no_headroom() -> None:
    device = Device()
    device.allocate(50 * GIB)
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    assert peaks.figures(used=95 * GIB)["memory/headroom"] == (100 - 15 - 50) / 100
    assert peaks.figures(used=80 * GIB)["memory/headroom"] == 0.5


def test_what_this_process_gave_back_meanwhile_was_not_of_others() -> None:
    """As an evaluation that empties the cache; in the next row that no longer counts."""
    device = Device()
    device.allocate(20 * GIB)
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    device.reserved = 30 * GIB
    assert peaks.figures(used=82 * GIB)["memory/headroom_gib"] == 100 - 2 - 20
    assert peaks.figures(used=82 * GIB)["memory/headroom_gib"] == 100 - 52 - 20


def test_retries_count_from_training_on_and_not_where_a_step_is_taken_again() -> None:
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    assert peaks.figures(None)["memory/retries"] == 0, "those before were provoked by trying out what fits"
    device.retries += 1
    peaks.excuse()
    assert peaks.figures(None)["memory/retries"] == 0
    device.retries += 2
    assert [peaks.figures(None)["memory/retries"] for _ in range(2)] == [2, 2]


def test_a_step_is_looked_at_where_it_is_the_largest_or_costs_little() -> None:
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    for _ in range(FIRST_STEPS):
        peaks.step(1024)
        assert peaks.looks
    peaks.seconds = 1.0
    peaks.step(1024)
    assert not peaks.looks
    reads = device.reads
    peaks.step(512)
    peaks.begin("forward")
    assert device.reads == reads, "what is not looked at is not read"
    peaks.step(2048)
    assert peaks.looks, "its micro-batch is the largest so far"
    peaks.seconds = 0.9 * BUDGET * peaks.steps
    peaks.step(1024)
    assert peaks.looks


def test_a_step_that_is_looked_at_is_read_once_a_phase() -> None:
    """A reading takes up to 70 us: none where a step begins ahead of its first phase, nor where a phase is said twice."""
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    peaks.seconds = -1e9  # whatever a busy machine takes for them
    reads = device.reads
    for _ in range(FIRST_STEPS):
        step(peaks, device, 1024, {"forward": 20})
        peaks.begin("forward")
        device.allocate(30 * GIB)
        step(peaks, device, 1024, {"backward": 25})
    assert device.reads - reads == 2 * FIRST_STEPS
    assert peaks.figures(None)["memory/peak_forward_gib"] == 30


def test_evaluations_are_looked_at_each_time() -> None:
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    peaks.steps, peaks.seconds, peaks._largest = 50, 1e9, 4096
    step(peaks, device, 1024, {"forward": 70})
    peaks.begin("evaluation")
    device.allocate(33 * GIB)
    device.allocate(GIB)
    step(peaks, device, 1024, {"forward": 60})
    figures = peaks.figures(used=None)
    assert figures["memory/peak_evaluation_gib"] == 33
    assert "memory/peak_forward_gib" not in figures
    assert figures["peak_memory_gib"] == 70


def test_counters_of_a_device_that_was_not_used_are_zero() -> None:
    assert Allocator.of({}) == Allocator(0, 0, 0, 0, 0, 0)
    nested = {"allocated_bytes": {"all": {"current": 3, "peak": 7}}, "num_alloc_retries": 2, "num_ooms": 1}
    assert Allocator.of(nested) == Allocator(3, 7, 0, 0, 2, 1)


def test_looking_for_rows_takes_nothing_from_looking_at_phases() -> None:
    """A run that logs every step would see no phase behind its first steps. What rows take is in what their writing took."""
    device = Device()
    peaks = PhasePeaks(100 * GIB, device.read, device.reset)
    for _ in range(FIRST_STEPS):
        peaks.step(1024)
        peaks.begin("forward")
    spent = peaks.seconds
    assert spent > 0
    for _ in range(100):
        peaks.figures(used=None)
    assert peaks.seconds == spent
