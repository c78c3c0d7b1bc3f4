"""Charges customers, each order once. It publishes and consumes: outbox and inbox."""
