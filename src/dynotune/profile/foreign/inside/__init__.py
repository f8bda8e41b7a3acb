"""What runs inside the profiled script: it watches, keeps its own cost, and changes nothing that is not put back."""
