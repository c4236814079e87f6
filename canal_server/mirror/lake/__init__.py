"""Tables in the lake, in either format: their interface, files and rows.

Leaves out where changes come from (`follow`, `copy`). The other packages of `mirror`
import it; it imports only `settings` of them.
"""
