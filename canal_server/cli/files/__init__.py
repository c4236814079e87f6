"""`canal-server files`: the files of the package for systemd, Prometheus and others.

`shipped_files` finds them, also for `canal-server init`. Only `cli` imports this
package.
"""
