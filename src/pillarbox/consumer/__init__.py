"""The consumer: messages of a broker, each taken into effect once, in the order of its key."""
