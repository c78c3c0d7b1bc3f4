"""What the four services of the shop share, as a company's own small library would have it."""
