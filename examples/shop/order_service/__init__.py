"""Takes orders and says what became of them. It publishes and consumes: outbox and inbox."""
