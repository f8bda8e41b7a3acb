"""Chat templates: rendering, proofs about them, loss masks."""
