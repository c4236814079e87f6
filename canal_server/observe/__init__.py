"""What each destination shows (`readings`), and the metrics that are made of it.

Everything is computed when it is asked for, from what the stages keep anyway. The page
(`web`) and `alarms` are made of the same readings.
"""
