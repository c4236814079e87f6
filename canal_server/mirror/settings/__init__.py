"""The settings of a mirror, read and checked, and the tables that they select.

Leaves out what is done with the tables. All packages of `mirror`, and the command line,
import it.
"""
