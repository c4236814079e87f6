from canal_server.arrow.entry_walk import EntryColumns

class GenericColumns(EntryColumns):
    def __init__(
        self,
        destination: str,
        *,
        json: bool = ...,
        epoch: int = ...,
        rows_max: int = ...,
        bytes_max: int = ...,
    ) -> None: ...
