"""Tables in the lake as Delta tables, through the delta-rs library.

Leaves out the interface (`lake_table`) and logs of changes (`change_files`).
`state.lake_tables` opens them.
"""
