"""Keeps the stock and reserves it for orders. It publishes and consumes: outbox and inbox."""
