"""Events, aggregates and envelopes: values and rules, no I/O."""
