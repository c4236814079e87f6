"""Tables in the lake as Iceberg tables, through the pyiceberg library.

pyiceberg is an extra: only `state.lake_tables` imports this package, when a table needs
it. Leaves out the interface (`lake_table`).
"""
