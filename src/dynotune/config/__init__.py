"""What a user may say: keys, the fates of other trainers' keys, reading, checking and writing configurations."""
