#!/bin/sh
# Starts the ZooKeeper of an image that `container_image.py` made; the variables are
# those of the official image, with its defaults.
set -eu

mkdir -p /conf /data
cat >/conf/zoo.cfg <<CFG
dataDir=/data
clientPort=2181
tickTime=${ZOO_TICK_TIME:-2000}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
CFG
for line in ${ZOO_CFG_EXTRA:-}; do
    echo "$line" >>/conf/zoo.cfg
done

exec /usr/lib/jvm/default-java/bin/java ${JVMFLAGS:-} -classpath "/usr/share/java/*" \
    org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
