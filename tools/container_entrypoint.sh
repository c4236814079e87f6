#!/bin/sh
# Starts the server of an image that `container_image.py` made, as the official images
# of MySQL and MariaDB do: MYSQL_ROOT_PASSWORD is root's from everywhere, MYSQL_DATABASE
# is made, /docker-entrypoint-initdb.d/*.sql are run, the arguments are options of the
# server.
set -eu

data=/var/lib/mysql
server=/usr/sbin/mariadbd  # comes with a link that is named mysqld
[ -x "$server" ] || server=/usr/sbin/mysqld
serve() { "$server" --no-defaults --user=root --datadir="$data" "$@"; }

if [ ! -d "$data/mysql" ]; then
    if [ "$server" = /usr/sbin/mysqld ]; then
        serve --initialize-insecure
        here="ALTER USER"
    else
        {
            # In this mode a statement ends with its line.
            echo 'CREATE DATABASE mysql;'
            echo 'USE mysql;'
            echo 'SET @skip_auth_anonymous=1;'
            echo 'SET @auth_root_socket=NULL;'
            cd /usr/share/mariadb 2>/dev/null || cd /usr/share/mysql
            cat ./*_system_tables.sql ./*_performance_tables.sql \
                ./*_system_tables_data.sql
        } | serve --bootstrap --skip-log-bin
        cd /
        here="CREATE OR REPLACE USER"
    fi
    cat >/tmp/first.sql <<SQL
$here 'root'@'localhost' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
CREATE USER 'root'@'%' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
GRANT ALL ON *.* TO 'root'@'localhost' WITH GRANT OPTION;
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
    if [ -n "${MYSQL_DATABASE:-}" ]; then
        echo "CREATE DATABASE \`$MYSQL_DATABASE\`;" >>/tmp/first.sql
    fi
    for script in /docker-entrypoint-initdb.d/*.sql; do
        [ ! -e "$script" ] || cat "$script" >>/tmp/first.sql
    done
    chmod 600 /tmp/first.sql
    set -- --init-file=/tmp/first.sql "$@"
fi

# Where their clients look for the socket: MySQL's in /var/run, MariaDB's in /run.
mkdir -p /run/mysqld
[ -e /var/run/mysqld ] || ln -s /run/mysqld /var/run/mysqld
exec "$server" --no-defaults --user=root --datadir="$data" --secure-file-priv= \
    --pid-file=/run/server.pid --socket=/run/mysqld/mysqld.sock "$@"
