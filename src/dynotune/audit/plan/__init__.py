"""In which order to apply what was found."""
