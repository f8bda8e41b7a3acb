"""Orders from outside: signals, and a limit of time."""
