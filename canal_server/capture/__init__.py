"""One source's way into a store, wired: pump, transaction buffer, sink and store.

`instance` and `catchup` build their pipelines from it. It does not know clients.
"""
