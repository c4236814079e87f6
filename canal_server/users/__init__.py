"""Who may log in, and what each user may do: users.yml, its rights, and their effect.

Leaves out the ports (`server`, `web`, metrics), which ask here. They and `daemon` and
`cli` may import this package.
"""
