"""What a preference run knows before its first step: its pairs' reference, and that the policy still agrees with it."""
