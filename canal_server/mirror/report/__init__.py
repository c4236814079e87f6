"""What a mirror reports: status and history, plots of them, and SQL for its tables.

Leaves out how they are stored (`state.run_history`). `run` and the command line import
it.
"""
