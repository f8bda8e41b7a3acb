"""The parts of `gpu_levers.py`: levers beside what runs today, right first, then timed."""
