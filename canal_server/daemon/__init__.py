"""The process: destinations and their lives, the conf folder, the control socket.

Leaves out what an instance does (`instance`) and who may run one (`ha`). `cli` imports
it, and so does nothing else.
"""
