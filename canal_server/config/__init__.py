"""Settings: canal.properties and instance.properties as typed, checked values.

`schema` holds the values, `keys` which key fills which of them, `load` reads a conf
folder. Leaves out what the stages make of their sections.
"""
