"""What a mirror reports while it runs: status and history, and plots of them.

Leaves out how they are stored (`state.run_history`). `run` and the command line import
it.
"""
