"""The processes that arms live in, and the hands that hold them: a step, a block, the peak memory, when told."""
