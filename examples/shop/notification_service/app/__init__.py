"""The notification service."""
