"""From files to tokenised examples, with every row and token accounted for."""
