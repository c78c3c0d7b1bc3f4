"""Writes to customers, each message once. It only consumes: an inbox is all it needs."""
