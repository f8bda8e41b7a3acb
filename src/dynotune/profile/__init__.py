"""What a run is doing, where its time goes, what holds it back and what would change that."""
