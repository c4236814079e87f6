"""Shows canal-server at work: a bookshop on a database, and a client that follows it.

    python tools/demo.py [mysql|mariadb]

MYSQL_URL (or MARIADB_URL) names a server to use; the demo then works in a schema of
its own and drops it. Else a private server is started (`servers`). Nothing is left
running, and no file but those that make the next time faster.

Exit status: 0 all came as it should, 1 something did not or is missing, 128 + n ended
by signal n.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    # Until there is something to clean up, Ctrl-C just ends us: no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from demo_story import main

    sys.exit(main())
