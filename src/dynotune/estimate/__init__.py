"""What a run will take before it runs: memory, the fastest setting that fits, speed-ups (`dynotune plan`)."""
