"""Message buses, one skeleton each."""
