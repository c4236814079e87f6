"""Reading for as long as the process lives: the pump of a destination's source.

`pump` is the thread, and everything else here serves it. Leaves out where a session
begins (`source.begin`), and what becomes of the entries (`pipeline`).
"""
