"""Step graphs: the layers of a small micro-batch replayed as two CUDA graphs, forward and backward."""

from dynotune.model.step_graphs.captured import Captured, Pool
from dynotune.model.step_graphs.graphs import StepGraphs, graphs_made
from dynotune.model.step_graphs.passes import Launched

__all__ = ["Captured", "Launched", "Pool", "StepGraphs", "graphs_made"]
