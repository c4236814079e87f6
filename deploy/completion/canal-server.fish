# fish completion of canal-server, printed by `canal-server completion fish`

# Prints the command of the command line, with its action.
function __canal_server_command
    set -l command
    set -l is_value no
    for word in (commandline -opc)[2..-1]
        if test $is_value = yes
            set is_value no
        else if string match -q -- '-*' $word
            switch "$command $word"
                case ' init --conf' \
                    ' init --destination' \
                    ' start --conf' \
                    ' start --log-level' \
                    ' start --log-format' \
                    ' start --log-dir' \
                    ' start --pid-file' \
                    ' stop --conf' \
                    ' stop --pid-file' \
                    ' stop --timeout' \
                    ' check --conf' \
                    ' check --destination' \
                    ' status --conf' \
                    ' status --max-lag' \
                    ' status --max-client-lag' \
                    ' status --max-blocked' \
                    ' status --timeout' \
                    ' position show --conf' \
                    ' position show --destination' \
                    ' position seek --conf' \
                    ' position seek --destination' \
                    ' position seek --to' \
                    ' position seek --source' \
                    ' position seek --client-id' \
                    ' position seek --client' \
                    ' subscriptions list --conf' \
                    ' subscriptions list --destination' \
                    ' subscriptions remove --conf' \
                    ' subscriptions remove --destination' \
                    ' user add --conf' \
                    ' user add --file' \
                    ' user add --read' \
                    ' user add --tables' \
                    ' user add --columns' \
                    ' user add --remove-columns' \
                    ' user add --mask-columns' \
                    ' user add --client' \
                    ' user add --subscription' \
                    ' user add --ranges' \
                    ' user add --operate' \
                    ' user add --observe' \
                    ' user add --certificate' \
                    ' user add --connections' \
                    ' user passwd --conf' \
                    ' user passwd --file' \
                    ' user list --conf' \
                    ' user list --file' \
                    ' user remove --conf' \
                    ' user remove --file' \
                    ' tail --conf' \
                    ' tail --host' \
                    ' tail --port' \
                    ' tail --destination' \
                    ' tail --user' \
                    ' tail --tls-ca-file' \
                    ' tail --tls-cert-file' \
                    ' tail --tls-key-file' \
                    ' tail --password-file' \
                    ' tail --filter' \
                    ' tail --from' \
                    ' tail --since' \
                    ' tail --client-id' \
                    ' tail --count' \
                    ' consume --conf' \
                    ' consume --host' \
                    ' consume --port' \
                    ' consume --destination' \
                    ' consume --user' \
                    ' consume --tls-ca-file' \
                    ' consume --tls-cert-file' \
                    ' consume --tls-key-file' \
                    ' consume --password-file' \
                    ' consume --handler' \
                    ' consume --set' \
                    ' consume --set-env' \
                    ' consume --table' \
                    ' consume --filter' \
                    ' consume --client-id' \
                    ' consume --batch-size' \
                    ' consume --time-zone' \
                    ' consume --retries' \
                    ' consume --retry-for' \
                    ' consume --dead-letter' \
                    ' consume --progress' \
                    ' consume --metrics-file' \
                    ' consume --log-level' \
                    ' unsubscribe --conf' \
                    ' unsubscribe --host' \
                    ' unsubscribe --port' \
                    ' unsubscribe --destination' \
                    ' unsubscribe --user' \
                    ' unsubscribe --tls-ca-file' \
                    ' unsubscribe --tls-cert-file' \
                    ' unsubscribe --tls-key-file' \
                    ' unsubscribe --password-file' \
                    ' unsubscribe --client-id' \
                    ' unsubscribe --client' \
                    ' decode --source' \
                    ' decode --password-env' \
                    ' decode --password-file' \
                    ' decode --tls' \
                    ' decode --server-public-key' \
                    ' decode --columns' \
                    ' decode --conf' \
                    ' decode --destination' \
                    ' decode --from' \
                    ' decode --until' \
                    ' decode --count' \
                    ' decode --filter' \
                    ' decode --unreadable' \
                    ' mirror --conf' \
                    ' mirror --log-level' \
                    ' mirror status --conf' \
                    ' mirror copy --conf' \
                    ' mirror verify --conf' \
                    ' mirror verify --rows' \
                    ' mirror verify --wait' \
                    ' mirror plot --conf' \
                    ' mirror plot --hours' \
                    ' mirror plot --output' \
                    ' mirror sql --conf' \
                    ' mirror sql --engine' \
                    ' mirror sql --with' \
                    ' mirror sql --name' \
                    ' mirror sql --union' \
                    ' mirror sql --catalog' \
                    ' schema show --conf' \
                    ' schema show --destination' \
                    ' schema show --at' \
                    ' schema show --table' \
                    ' schema show --format' \
                    ' schema history --conf' \
                    ' schema history --destination' \
                    ' schema history --table' \
                    ' schema history --since' \
                    ' schema history --format' \
                    ' schema verify --conf' \
                    ' schema verify --destination' \
                    ' schema verify --table' \
                    ' schema export --conf' \
                    ' schema export --destination' \
                    ' schema export --at' \
                    ' schema import --conf' \
                    ' schema import --destination' \
                    ' schema import --at' \
                    ' schema import --schema' \
                    ' files --to'
                    set is_value yes
            end
        else
            switch "$command $word"
                case ' init' ' start' ' stop' ' check' ' status' ' position' ' position show' ' position seek' ' subscriptions' ' subscriptions list' ' subscriptions remove' ' user' ' user add' ' user passwd' ' user list' ' user remove' ' tail' ' consume' ' unsubscribe' ' decode' ' mirror' ' mirror status' ' mirror copy' ' mirror verify' ' mirror plot' ' mirror sql' ' schema' ' schema show' ' schema history' ' schema verify' ' schema export' ' schema import' ' files' ' completion' ' version'
                    set command "$command $word"
            end
        end
    end
    echo $command
end

function __canal_server_at
    test (__canal_server_command) = "$argv[1]"
end

# The destinations in the conf folder of the command line.
function __canal_server_destinations
    set -l conf conf
    set -q CANAL_CONF[1]; and set conf $CANAL_CONF
    set -l words (commandline -opc)
    for i in (seq (count $words))
        switch $words[$i]
            case --conf
                set -q words[(math $i + 1)]; and set conf $words[(math $i + 1)]
            case '--conf=*'
                set conf (string replace -- --conf= '' $words[$i])
        end
    end
    set conf (string replace -r -- '^~' $HOME $conf)
    for each in $conf/*/instance.properties
        basename (dirname $each)
    end
end

complete -c canal-server -f
complete -c canal-server -n '__canal_server_at \'\'' -a init -d 'write a conf folder to start with'
complete -c canal-server -n '__canal_server_at \'\'' -a start -d 'run the server'
complete -c canal-server -n '__canal_server_at \'\'' -a stop -d 'stop a running server'
complete -c canal-server -n '__canal_server_at \'\'' -a check -d 'check settings, sources and privileges before a start'
complete -c canal-server -n '__canal_server_at \'\'' -a status -d 'show the state of a server and of its cluster'
complete -c canal-server -n '__canal_server_at \'\'' -a position -d 'show and move the positions of clients'
complete -c canal-server -n '__canal_server_at \'\'' -a subscriptions -d 'show and remove subscriptions of ranged readers'
complete -c canal-server -n '__canal_server_at \'\'' -a user -d 'manage users and their rights'
complete -c canal-server -n '__canal_server_at \'\'' -a tail -d 'print changes as they arrive'
complete -c canal-server -n '__canal_server_at \'\'' -a consume -d 'run a handler over changes'
complete -c canal-server -n '__canal_server_at \'\'' -a unsubscribe -d 'remove the subscription of a client'
complete -c canal-server -n '__canal_server_at \'\'' -a decode -d 'print changes from binlog files or a server\'s binlog'
complete -c canal-server -n '__canal_server_at \'\'' -a mirror -d 'replicate tables into a data lake with Spark'
complete -c canal-server -n '__canal_server_at \'\'' -a schema -d 'show, verify, export and import the table history'
complete -c canal-server -n '__canal_server_at \'\'' -a files -d 'write files for systemd, Prometheus, Grafana and Kubernetes'
complete -c canal-server -n '__canal_server_at \'\'' -a completion -d 'print a script with which a shell completes commands'
complete -c canal-server -n '__canal_server_at \'\'' -a version -d 'print the version'
complete -c canal-server -n '__canal_server_at \'\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \'\'' -s V -l version -d 'print the version and exit'
complete -c canal-server -n '__canal_server_at \' init\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' init\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' init\'' -l destination -x -a '(__canal_server_destinations)' -d 'name of the destination (default: example)'
complete -c canal-server -n '__canal_server_at \' init\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' start\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' start\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' start\'' -l log-level -x -a 'debug info warning error' -d 'minimum level of log messages (default: info)'
complete -c canal-server -n '__canal_server_at \' start\'' -l log-format -x -a 'text json' -d 'lines of text, or of JSON (default: text)'
complete -c canal-server -n '__canal_server_at \' start\'' -l log-dir -x -a '(__fish_complete_directories (commandline -ct))' -d 'log to DIR/canal/canal.log and DIR/<destination>/<destination>.log, instead of standard error; full files are rotated (canal.log.file.megabytes, canal.log.files). With --daemon the default is the folder logs in the data folder'
complete -c canal-server -n '__canal_server_at \' start\'' -l daemon -d 'run in the background, independently of the terminal'
complete -c canal-server -n '__canal_server_at \' start\'' -l pid-file -r -F -d 'write the process id to FILE while the server runs'
complete -c canal-server -n '__canal_server_at \' stop\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' stop\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' stop\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' stop\'' -l pid-file -r -F -d 'stop the server that was started with this file, instead of --conf'
complete -c canal-server -n '__canal_server_at \' stop\'' -l timeout -x -d 'how long to wait, such as 30s or 2m (default: 30s)'
complete -c canal-server -n '__canal_server_at \' check\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' check\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' check\'' -l destination -x -a '(__canal_server_destinations)' -d 'only this destination (default: all)'
complete -c canal-server -n '__canal_server_at \' check\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' status\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' status\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' status\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' status\'' -l check -d 'check that the server and its destinations are healthy, print problems, and set the exit status'
complete -c canal-server -n '__canal_server_at \' status\'' -l max-lag -x -d 'with --check: maximum lag of a destination behind its source, such as 60s (default: no limit)'
complete -c canal-server -n '__canal_server_at \' status\'' -l max-client-lag -x -d 'with --check: maximum age of the first change that a client has not acked (default: no limit)'
complete -c canal-server -n '__canal_server_at \' status\'' -l max-blocked -x -d 'with --check: how long reading may wait for clients (default: 10s)'
complete -c canal-server -n '__canal_server_at \' status\'' -l timeout -x -d 'how long to wait for the answer of the server (default: 15s)'
complete -c canal-server -n '__canal_server_at \' position\'' -a show -d 'print the positions of clients, and their lag'
complete -c canal-server -n '__canal_server_at \' position\'' -a seek -d 'move clients to another position'
complete -c canal-server -n '__canal_server_at \' position\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' position show\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' position show\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' position show\'' -l destination -x -a '(__canal_server_destinations)' -d 'only this destination (default: all)'
complete -c canal-server -n '__canal_server_at \' position show\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' position seek\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose clients to move; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l to -x -d 'new position: FILE:POSITION, a GTID set, a time with a zone (2026-11-21T10:00:00+00:00), in milliseconds since 1970 or relative to now (-1h, -10m, -2d), oldest, latest'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l source -x -d 'move only in this source of a group, given as masterN or by its address; required for FILE:POSITION and a GTID set (default: all)'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l client-id -l client -x -d 'only this client; repeatable (default: all)'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l dry-run -d 'print what would happen, change nothing'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l yes -d 'move without confirmation'
complete -c canal-server -n '__canal_server_at \' position seek\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' subscriptions\'' -a list -d 'print the subscriptions, and their lag'
complete -c canal-server -n '__canal_server_at \' subscriptions\'' -a remove -d 'remove subscriptions that are no longer used'
complete -c canal-server -n '__canal_server_at \' subscriptions\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' subscriptions list\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' subscriptions list\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' subscriptions list\'' -l destination -x -a '(__canal_server_destinations)' -d 'only this destination (default: all)'
complete -c canal-server -n '__canal_server_at \' subscriptions list\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' subscriptions remove\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' subscriptions remove\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' subscriptions remove\'' -l destination -x -a '(__canal_server_destinations)' -d 'whose; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' subscriptions remove\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' subscriptions remove\'' -x
complete -c canal-server -n '__canal_server_at \' user\'' -a add -d 'add a user with rights'
complete -c canal-server -n '__canal_server_at \' user\'' -a passwd -d 'change the password of a user'
complete -c canal-server -n '__canal_server_at \' user\'' -a list -d 'print the users and their rights'
complete -c canal-server -n '__canal_server_at \' user\'' -a remove -d 'remove a user'
complete -c canal-server -n '__canal_server_at \' user\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' user add\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' user add\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' user add\'' -l file -r -F -d 'file of users (default: canal.users.file in the conf folder)'
complete -c canal-server -n '__canal_server_at \' user add\'' -l password-stdin -d 'read the password from standard input, one line (default: ask for it at the terminal)'
complete -c canal-server -n '__canal_server_at \' user add\'' -l read -x -d 'subscribe to these destinations, and receive their rows'
complete -c canal-server -n '__canal_server_at \' user add\'' -l tables -x -d 'of them only these tables: regular expressions as in canal.instance.filter.regex'
complete -c canal-server -n '__canal_server_at \' user add\'' -l columns -x -d 'only these columns of some tables, as in canal.instance.filter.field: schema.table:column/column,…'
complete -c canal-server -n '__canal_server_at \' user add\'' -l remove-columns -x -d 'leave these columns out'
complete -c canal-server -n '__canal_server_at \' user add\'' -l mask-columns -x -d 'replace the values of these columns: texts by ****, others by NULL'
complete -c canal-server -n '__canal_server_at \' user add\'' -l client -x -d 'use only this client id, or these: 2000-2099 (may be repeated)'
complete -c canal-server -n '__canal_server_at \' user add\'' -l subscription -x -d 'use only ranged subscriptions with these names'
complete -c canal-server -n '__canal_server_at \' user add\'' -l ranges -x -d 'read ranges of these destinations, as Spark and the mirror do; needs --read'
complete -c canal-server -n '__canal_server_at \' user add\'' -l operate -x -d 'move cursors of these destinations, stop and start them, remove clients'
complete -c canal-server -n '__canal_server_at \' user add\'' -l observe -x -d 'see the state, metrics, positions and table history of these destinations'
complete -c canal-server -n '__canal_server_at \' user add\'' -l certificate -x -d 'log in with a certificate of this subject (CN=name,O=company), or with this name in it: dns:NAME, email:ADDRESS, uri:URI, ip:ADDRESS'
complete -c canal-server -n '__canal_server_at \' user add\'' -l no-password -d 'the user logs in with a certificate only'
complete -c canal-server -n '__canal_server_at \' user add\'' -l connections -x -d 'connections at the same time (default: canal.server.connections.per.user.max)'
complete -c canal-server -n '__canal_server_at \' user add\'' -x
complete -c canal-server -n '__canal_server_at \' user passwd\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' user passwd\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' user passwd\'' -l file -r -F -d 'file of users (default: canal.users.file in the conf folder)'
complete -c canal-server -n '__canal_server_at \' user passwd\'' -l password-stdin -d 'read the password from standard input, one line (default: ask for it at the terminal)'
complete -c canal-server -n '__canal_server_at \' user passwd\'' -x
complete -c canal-server -n '__canal_server_at \' user list\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' user list\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' user list\'' -l file -r -F -d 'file of users (default: canal.users.file in the conf folder)'
complete -c canal-server -n '__canal_server_at \' user list\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' user remove\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' user remove\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' user remove\'' -l file -r -F -d 'file of users (default: canal.users.file in the conf folder)'
complete -c canal-server -n '__canal_server_at \' user remove\'' -x
complete -c canal-server -n '__canal_server_at \' tail\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' tail\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with the canal.properties of the server, for the values of omitted options (default: $CANAL_CONF if set, else conf if it has that file; unused with --host or --port)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l host -x -d 'host of the server (default: 127.0.0.1)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l port -x -d 'port of the server (default: 11111)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l destination -x -a '(__canal_server_destinations)' -d 'name (default: the only configured destination, else example)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l user -x -d 'user name for the login'
complete -c canal-server -n '__canal_server_at \' tail\'' -l tls -d 'connect with TLS'
complete -c canal-server -n '__canal_server_at \' tail\'' -l tls-ca-file -r -F -d 'certificates of the trusted authorities, PEM (default: those of the system)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l tls-cert-file -r -F -d 'certificate to show to the server, PEM'
complete -c canal-server -n '__canal_server_at \' tail\'' -l tls-key-file -r -F -d 'its private key, PEM (default: in that file)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l password-file -r -F -d 'file with the password for the login (default: the password in $CANAL_PASSWORD)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l filter -x -d 'tables to print: comma-separated regular expressions for schema.table, such as .*\\..* for all tables, or shop\\..*,crm\\.person; statements without a table, such as CREATE DATABASE, match every filter; default: the filter configured on the server'
complete -c canal-server -n '__canal_server_at \' tail\'' -l from -l since -x -d 'where to start: FILE:POSITION, a time (2026-11-21T10:00:00, -10m, -1h, milliseconds since 1970), gtid:SET, oldest or latest; the binlog of the source is read again without subscribing a client; default: the oldest change that the server holds in memory'
complete -c canal-server -n '__canal_server_at \' tail\'' -l client-id -x -d 'resume from the position of this client, and keep its subscription; default: an unused id, whose subscription is removed at the end'
complete -c canal-server -n '__canal_server_at \' tail\'' -l count -x -d 'stop after N changes'
complete -c canal-server -n '__canal_server_at \' tail\'' -l no-ack -d 'do not acknowledge changes, so the position of the client does not move (the server stops reading when its memory for changes is full)'
complete -c canal-server -n '__canal_server_at \' tail\'' -l transactions -d 'also print the begin and end of transactions'
complete -c canal-server -n '__canal_server_at \' tail\'' -l json -d 'print JSON lines also on a terminal'
complete -c canal-server -n '__canal_server_at \' tail\'' -l canal-json -d 'print flat messages, one per line, as the original sends them to message queues; with --count, N messages'
complete -c canal-server -n '__canal_server_at \' consume\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' consume\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with the canal.properties of the server, for the values of omitted options (default: $CANAL_CONF if set, else conf if it has that file; unused with --host or --port)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l host -x -d 'host of the server (default: 127.0.0.1)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l port -x -d 'port of the server (default: 11111)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l destination -x -a '(__canal_server_destinations)' -d 'name (default: the only configured destination, else example)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l user -x -d 'user name for the login'
complete -c canal-server -n '__canal_server_at \' consume\'' -l tls -d 'connect with TLS'
complete -c canal-server -n '__canal_server_at \' consume\'' -l tls-ca-file -r -F -d 'certificates of the trusted authorities, PEM (default: those of the system)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l tls-cert-file -r -F -d 'certificate to show to the server, PEM'
complete -c canal-server -n '__canal_server_at \' consume\'' -l tls-key-file -r -F -d 'its private key, PEM (default: in that file)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l password-file -r -F -d 'file with the password for the login (default: the password in $CANAL_PASSWORD)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l handler -x -d 'module:name of a function, object or class, found in the current folder or installed, or one of json-lines, parquet, sql, kafka, webhook'
complete -c canal-server -n '__canal_server_at \' consume\'' -l set -x -d 'setting of the handler; may be repeated'
complete -c canal-server -n '__canal_server_at \' consume\'' -l set-env -x -d 'setting of the handler with the value of an environment variable, for secrets; may be repeated'
complete -c canal-server -n '__canal_server_at \' consume\'' -l table -x -d 'table whose changes are handled; may be repeated (default: all that the server selects)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l filter -x -d 'the same as comma-separated regular expressions for schema.table'
complete -c canal-server -n '__canal_server_at \' consume\'' -l client-id -x -d 'client whose position is used; each consumer needs its own (default: 1001)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l batch-size -x -d 'maximum size of a message, in KiB or entries, depending on the server (default: 1000)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l time-zone -x -d 'time zone of the server process, in which it sends TIMESTAMP columns (default: UTC)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l retries -x -d 'how often a failing change is retried (default: 10)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l retry-for -x -d 'how long an unavailable target is retried (default: without limit)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l dead-letter -r -F -d 'file to which changes that failed for good are appended (default: the first one ends the command with status 1)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l progress -x -d 'how often to print a progress line, 0s for never (default: 10s)'
complete -c canal-server -n '__canal_server_at \' consume\'' -l metrics-file -r -F -d 'file for counters in the Prometheus format, for example for node_exporter'
complete -c canal-server -n '__canal_server_at \' consume\'' -l log-level -x -a 'debug info warning error' -d 'minimum level of log messages (default: info)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with the canal.properties of the server, for the values of omitted options (default: $CANAL_CONF if set, else conf if it has that file; unused with --host or --port)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l host -x -d 'host of the server (default: 127.0.0.1)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l port -x -d 'port of the server (default: 11111)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l destination -x -a '(__canal_server_destinations)' -d 'name (default: the only configured destination, else example; required if there are several)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l user -x -d 'user name for the login'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l tls -d 'connect with TLS'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l tls-ca-file -r -F -d 'certificates of the trusted authorities, PEM (default: those of the system)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l tls-cert-file -r -F -d 'certificate to show to the server, PEM'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l tls-key-file -r -F -d 'its private key, PEM (default: in that file)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l password-file -r -F -d 'file with the password for the login (default: the password in $CANAL_PASSWORD)'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l client-id -l client -x -d 'id of the client; `canal-server status` lists them'
complete -c canal-server -n '__canal_server_at \' unsubscribe\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' decode\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' decode\'' -l source -x -d 'server to read table definitions from, and the binlog with --from: mysql://user@host:port'
complete -c canal-server -n '__canal_server_at \' decode\'' -l password-env -x -d 'environment variable with the password for --source'
complete -c canal-server -n '__canal_server_at \' decode\'' -l password-file -r -F -d 'file with the password for --source'
complete -c canal-server -n '__canal_server_at \' decode\'' -l tls -x -d 'TLS mode for --source: DISABLED, PREFERRED (default), REQUIRED'
complete -c canal-server -n '__canal_server_at \' decode\'' -l server-public-key -r -F -d 'public key to encrypt the password with on connections without TLS'
complete -c canal-server -n '__canal_server_at \' decode\'' -l allow-public-key-retrieval -d 'request the public key from the server; always allowed for a local server'
complete -c canal-server -n '__canal_server_at \' decode\'' -l columns -r -F -d 'table definitions; without this and --source, they come from the table map events'
complete -c canal-server -n '__canal_server_at \' decode\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'without --source: folder with the canal.properties that configures the source to read with --from (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' decode\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose source to read; required if several are configured'
complete -c canal-server -n '__canal_server_at \' decode\'' -l standby -d 'read the standby of the destination instead of its master'
complete -c canal-server -n '__canal_server_at \' decode\'' -l from -x -d 'read the binlog of the source from this position, by default up to its end: FILE:POS, a time (2026-11-21T10:00:00, -1h, milliseconds since 1970), a GTID set, oldest'
complete -c canal-server -n '__canal_server_at \' decode\'' -l until -x -d 'stop before the first event at or after this position; same formats as --from, only FILE:POS for files'
complete -c canal-server -n '__canal_server_at \' decode\'' -l count -x -d 'stop after N changes'
complete -c canal-server -n '__canal_server_at \' decode\'' -l follow -d 'wait for new events at the end of the binlog'
complete -c canal-server -n '__canal_server_at \' decode\'' -l filter -x -d 'tables to print: comma-separated regular expressions for schema.table, such as .*\\..* for all tables, or shop\\..*,crm\\.person; statements without a table, such as CREATE DATABASE, match every filter'
complete -c canal-server -n '__canal_server_at \' decode\'' -l transactions -d 'also print the begin and end of transactions'
complete -c canal-server -n '__canal_server_at \' decode\'' -l entries -d 'print complete entries with all fields'
complete -c canal-server -n '__canal_server_at \' decode\'' -l json -d 'accepted for consistency; the output is always JSON lines'
complete -c canal-server -n '__canal_server_at \' decode\'' -l canal-json -d 'print flat messages, one per line, as the original sends them to message queues; with --count, N messages'
complete -c canal-server -n '__canal_server_at \' decode\'' -l unreadable -x -a 'skip raw' -d 'how to handle events that cannot be decoded: skip omits them, raw prints their bytes; each one is logged'
complete -c canal-server -n '__canal_server_at \' decode\'' -l compare -d 'also read with mysql-replication, and print only the differences'
complete -c canal-server -n '__canal_server_at \' decode\'' -r -F
complete -c canal-server -n '__canal_server_at \' mirror\'' -a status -d 'show the state of a mirror'
complete -c canal-server -n '__canal_server_at \' mirror\'' -a copy -d 'copy tables again'
complete -c canal-server -n '__canal_server_at \' mirror\'' -a verify -d 'compare the copies with the source'
complete -c canal-server -n '__canal_server_at \' mirror\'' -a plot -d 'plot delay and throughput over time'
complete -c canal-server -n '__canal_server_at \' mirror\'' -a sql -d 'print SQL that makes the copies known to an engine'
complete -c canal-server -n '__canal_server_at \' mirror\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror\'' -l dry-run -d 'print what would be done and any problems; write nothing'
complete -c canal-server -n '__canal_server_at \' mirror\'' -l once -d 'copy what is to be copied, follow to the current end of the binlog, and end'
complete -c canal-server -n '__canal_server_at \' mirror\'' -l log-level -x -a 'debug info warning error' -d 'minimum level of log messages (default: info)'
complete -c canal-server -n '__canal_server_at \' mirror status\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror status\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror status\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' mirror copy\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror copy\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror copy\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' mirror copy\'' -l all -d 'all tables of the mirror'
complete -c canal-server -n '__canal_server_at \' mirror copy\'' -x
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -l rows -x -d 'number of differing rows to show per table (default: 10)'
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -l wait -x -d 'how long to wait for a copy that lags; later changes are then ignored (default: 60)'
complete -c canal-server -n '__canal_server_at \' mirror verify\'' -x
complete -c canal-server -n '__canal_server_at \' mirror plot\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror plot\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror plot\'' -l hours -x -d 'only the last N hours (default: everything)'
complete -c canal-server -n '__canal_server_at \' mirror plot\'' -l output -r -F -d 'also write the plot to this file'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l conf -r -F -d 'settings of the mirror (default: mirror.yml in the folder $CANAL_CONF if it exists, else ./mirror.yml)'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l engine -x -a 'clickhouse duckdb spark trino' -d 'the engine'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l with -r -F -d 'settings of another mirror, whose tables are to be known as well; may be repeated'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l name -x -d 'the names of the tables in the engine, of {mirror}, {schema} and {table} (default: {schema}.{table})'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l union -x -d 'also a view, schema.name, of the rows of all tables whose schema.table matches the expression, with the columns _mirror and _table; may be repeated'
complete -c canal-server -n '__canal_server_at \' mirror sql\'' -l catalog -x -d 'the engine\'s name of the catalog: that of Iceberg tables, or in Trino that of the Delta Lake connector (default there: delta)'
complete -c canal-server -n '__canal_server_at \' schema\'' -a show -d 'print the tables at a position or time'
complete -c canal-server -n '__canal_server_at \' schema\'' -a history -d 'print who changed a table, when, and how'
complete -c canal-server -n '__canal_server_at \' schema\'' -a verify -d 'compare the history with the tables of the server'
complete -c canal-server -n '__canal_server_at \' schema\'' -a export -d 'write the tables at a position to a file'
complete -c canal-server -n '__canal_server_at \' schema\'' -a import -d 'start the history with the tables in a file'
complete -c canal-server -n '__canal_server_at \' schema\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema show\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose history to read; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l at -x -d 'binlog.000003:4711 (includes events before it), a time such as 2026-11-21T10:00:00 with or without a zone, relative to now such as -1h, or in milliseconds since 1970; default: the end of the history'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l table -x -d 'schema.table, or a regular expression for it; repeatable'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l all -d 'include tables of the server itself, such as mysql.user, which are otherwise shown only if --table selects them'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l format -x -a 'sql json' -d 'CREATE TABLE statements, or one JSON object per line (default: sql)'
complete -c canal-server -n '__canal_server_at \' schema show\'' -l json -d 'same as --format json'
complete -c canal-server -n '__canal_server_at \' schema history\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose history to read; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l table -x -d 'the table'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l since -x -d 'only changes since this time: 2026-11-21T10:00:00, -1h, or milliseconds since 1970'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l format -x -a 'text json' -d 'text, or one JSON object per line (default: text)'
complete -c canal-server -n '__canal_server_at \' schema history\'' -l json -d 'same as --format json'
complete -c canal-server -n '__canal_server_at \' schema verify\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema verify\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' schema verify\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose history to compare; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' schema verify\'' -l table -x -d 'schema.table, or a regular expression for it; repeatable'
complete -c canal-server -n '__canal_server_at \' schema verify\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' schema export\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema export\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' schema export\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose history to read; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' schema export\'' -l at -x -d 'binlog.000003:4711 (includes events before it), a time such as 2026-11-21T10:00:00 with or without a zone, relative to now such as -1h, or in milliseconds since 1970; default: the end of the history'
complete -c canal-server -n '__canal_server_at \' schema export\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' schema export\'' -r -F
complete -c canal-server -n '__canal_server_at \' schema import\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' schema import\'' -l conf -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder with canal.properties (default: $CANAL_CONF if set, else conf)'
complete -c canal-server -n '__canal_server_at \' schema import\'' -l destination -x -a '(__canal_server_destinations)' -d 'destination whose history to write; required if several destinations are configured'
complete -c canal-server -n '__canal_server_at \' schema import\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' schema import\'' -l at -x -d 'position of a dump, such as binlog.000003:4711; default: the one that --source-data or --master-data wrote into it'
complete -c canal-server -n '__canal_server_at \' schema import\'' -l schema -x -d 'schema of a dump that does not name one'
complete -c canal-server -n '__canal_server_at \' schema import\'' -r -F
complete -c canal-server -n '__canal_server_at \' files\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' files\'' -l to -x -a '(__fish_complete_directories (commandline -ct))' -d 'folder to write to; it is created'
complete -c canal-server -n '__canal_server_at \' files\'' -l overwrite -d 'replace files of an earlier version, and lose what was changed in them'
complete -c canal-server -n '__canal_server_at \' files\'' -l json -d 'print JSON'
complete -c canal-server -n '__canal_server_at \' files\'' -x -a 'systemd prometheus grafana helm bin'
complete -c canal-server -n '__canal_server_at \' completion\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' completion\'' -x -a 'bash zsh fish'
complete -c canal-server -n '__canal_server_at \' version\'' -s h -l help -d 'show this help message and exit'
complete -c canal-server -n '__canal_server_at \' version\'' -l json -d 'print JSON, for programs'
