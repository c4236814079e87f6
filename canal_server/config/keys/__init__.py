"""The tables of settings: for each key its field, its reader and its description.

A new key is an entry here, a field in `config.schema` and a line in `conf`;
`tools/reference/build.py` writes its documentation. Leaves out how texts are found
(`config.substitution`).
"""
