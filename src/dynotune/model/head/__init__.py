"""The head: from hidden states to the loss of label tokens."""

from dynotune.model.head.find import Found, find_head
from dynotune.model.head.head import Head
from dynotune.model.head.sequences import SequenceScores, sequence_scores

__all__ = ["Found", "Head", "SequenceScores", "find_head", "sequence_scores"]
