"""What operators and their tools read of a running server: metrics for Prometheus.

Everything is computed when it is asked for, from what the stages keep anyway.
"""
