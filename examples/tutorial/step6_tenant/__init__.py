"""Step 6: two customers of the service, and a wall between them."""
