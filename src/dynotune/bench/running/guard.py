"""What the device and the host did while a block ran, as a bench keeps it."""

from dynotune.measure.beside.beside import Beside
from dynotune.results.result import Clocks


class Guard(Beside):
    """Samples ten times a second."""

    def window(self, begin: float, end: float) -> Clocks:
        """Of what was sampled between two times of `time.perf_counter`. A window between two samples has none."""
        one = self.between(begin, end)
        return Clocks(
            samples=one.samples,
            sm_mhz=one.sm_mhz,
            power_watts=one.power_watts,
            celsius=one.celsius,
            utilisation_mean=one.utilisation_mean,
            utilisation_p95=one.utilisation_p95,
            throttled=one.throttled,
            other_processes=one.other_processes,
            steal=one.steal,
        )
