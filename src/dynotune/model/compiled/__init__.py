"""Decoder layers as compiled graphs: one for each token count of the ladder, and the same layers, names and files.

Legend of shapes: T tokens of the micro-batch, D hidden, S segments.
"""

from dynotune.model.compiled.layers import compiled_layer_of, decoder_layers
from dynotune.model.compiled.regions import Regions, compile_layers
from dynotune.model.compiled.report import Comparison, CompileReport

__all__ = ["Comparison", "CompileReport", "Regions", "compile_layers", "compiled_layer_of", "decoder_layers"]
