"""What turns files into facts. Everything is read, nothing is run or imported."""
