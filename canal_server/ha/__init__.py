"""Who may run a destination: this server alone, or one of several by a lease."""
