#!/usr/bin/env bash
# Installs the Debian packages that the lab's nodes run: the container runtime, the plain CNI plugins,
# the user land of netfilter, and what Weave Net is built with (libpcap) and runs (curl, ulogd); and
# PostgreSQL, which a test starts for itself. Does nothing when all are there.
set -euo pipefail
packages=(containerd runc containernetworking-plugins iptables nftables ipset conntrack iproute2
	ethtool libseccomp2 gcc libc6-dev libpcap-dev curl ulogd2 ulogd2-pcap postgresql-15)
missing=()
for package in "${packages[@]}"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "== installing ${missing[*]}"
[ "$(id -u)" = 0 ] || { echo "error: the lab needs root: it makes namespaces" >&2; echo "hint: sudo make $*" >&2; exit 1; }
apt-get update -qq
# No database is to be made either.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	mkdir -p /etc/postgresql-common
	echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf
fi
# No service of these packages is to start: the lab runs its own, in its own namespaces.
DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
