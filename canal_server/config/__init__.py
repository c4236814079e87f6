"""Settings: canal.properties and instance.properties as typed, validated values.

`schema` holds the values, `key_tables` maps keys to them, `load` reads a conf folder.
How the stages use their sections is left to them. Every package above may import
`schema`; `load` is for `daemon` and `cli`.
"""
