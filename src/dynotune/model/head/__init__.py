"""The head: from hidden states to the loss of label tokens."""

from dynotune.model.head.find import Found, find_head
from dynotune.model.head.head import Head

__all__ = ["Found", "Head", "find_head"]
