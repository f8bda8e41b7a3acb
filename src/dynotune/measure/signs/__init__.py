"""Signs that a run is held back, as functions of plain records: what a run warns of and a profile names."""
