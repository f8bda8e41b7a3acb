"""The head: from hidden states to the loss of label tokens."""

from dynotune.model.head.head import Head

__all__ = ["Head"]
