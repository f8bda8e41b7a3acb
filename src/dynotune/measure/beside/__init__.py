"""What a process beside a run or a bench samples of the device and the host."""
