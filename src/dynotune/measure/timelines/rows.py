"""A traced step as a line of time on which each instant belongs to one class of work: so the classes add up to the step.

On a GPU the line is the device's: where kernels run side by side the one that computes wins over a copy, and both over
communication, whose hidden part is told apart. Where nothing runs the device is idle, and what the host did in that moment
says for what it waited: a batch, other ranks, or the host itself (launching, Python, a value that was read). On the CPU the
line is that of the thread that trains: its innermost operator, or nothing.

After the idle split of Holistic Trace Analysis (https://github.com/facebookresearch/HolisticTraceAnalysis), with the host's
own work in the place of its thresholds.
"""

from dynotune.measure.kernel_classes import Surroundings
from dynotune.measure.timelines.device import of_device
from dynotune.measure.timelines.host import of_host
from dynotune.measure.timelines.segments import DATA_MARK, RANKS_MARK, Segments
from dynotune.measure.timelines.works import works
from dynotune.measure.traces.attribution import Attribution
from dynotune.measure.traces.events import Events


def segments_of(events: Events, where: Attribution, around: Surroundings, on_device: bool) -> Segments:
    """on_device: whether the step ran on a device whose events the trace holds. Else the host's operators are the line."""
    classes = works(events, where, around)
    return of_device(events, where, classes) if on_device else of_host(events, where, classes)


__all__ = ["DATA_MARK", "RANKS_MARK", "Segments", "segments_of", "works"]
