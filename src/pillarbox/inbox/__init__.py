"""The inbox: a message takes effect once for each tenant and consumer."""
