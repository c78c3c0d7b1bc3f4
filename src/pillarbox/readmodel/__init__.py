"""Read models: tables that are the fold of events, kept and built again beside their readers."""
