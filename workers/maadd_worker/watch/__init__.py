"""What changed on the disk behind the program's back (spec 01 §14.7, design §8)."""
