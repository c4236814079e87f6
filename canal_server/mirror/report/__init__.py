"""What a mirror reports: status, history, plots."""
