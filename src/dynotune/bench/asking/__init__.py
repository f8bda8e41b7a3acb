"""What a bench is asked: its arms, which of them are compared, in which order blocks run and when it stops."""
