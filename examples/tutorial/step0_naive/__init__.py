"""Before the first step: two writes, and what becomes of an event between them."""
