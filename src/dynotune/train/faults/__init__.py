"""What goes wrong while a run trains, and what is done about it: memory that runs out, steps that are not finite."""
