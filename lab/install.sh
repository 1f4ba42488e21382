#!/usr/bin/env bash
# Installs the Debian packages that the lab's nodes run: the container runtime, the plain CNI plugins, the
# user land of netfilter, and what Weave Net is built with (libpcap) and runs (curl, ulogd); and PostgreSQL
# and a registry of images, which tests start for themselves. BIRD, which Calico runs, is only unpacked, into a folder of the lab's: its
# package would start daemons on this machine, and take the place of another BIRD. So are the name servers that
# the tests of internal/mirror/dns start for themselves: BIND, Knot, PowerDNS and unbound all want port 53; and chromium, in which
# test/web looks at the live page, and prometheus, which tests of internal/ run, and beside labs those of lab/test. Does nothing when all are there.
set -euo pipefail
packages=(containerd runc containernetworking-plugins iptables nftables ipset conntrack iproute2
	ethtool libseccomp2 gcc libc6-dev libpcap-dev curl ulogd2 ulogd2-pcap libreadline8 postgresql-15 docker-registry)
[ "${THESEUS_FULL:-}" = 1 ] && packages+=(clang-19) # with which Cilium compiles its programs
bird=/usr/local/lib/theseus-lab/bird
dns=/usr/local/lib/theseus-lab/dns
chromium=/usr/local/lib/theseus-lab/chromium
prometheus=/usr/local/lib/theseus-lab/prometheus
missing=()
for package in "${packages[@]}"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && [ -d $bird ] && [ -d $dns ] && [ -d $chromium ] && [ -d $prometheus ] && exit 0
[ "$(id -u)" = 0 ] || { echo "error: the lab needs root: it makes namespaces" >&2; echo "hint: sudo make $*" >&2; exit 1; }
apt-get update -qq
if [ ${#missing[@]} -gt 0 ]; then
	echo "== installing ${missing[*]}"
	# No database is to be made.
	if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		mkdir -p /etc/postgresql-common
		echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf
	fi
	# No service of these packages is to start: the lab runs its own, in its own namespaces.
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -d $bird ]; then
	echo "== unpacking bird"
	(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root bird && dpkg-deb -x bird_*.deb bird)
	mkdir -p "${bird%/*}"
	mv "$work/bird" $bird
fi
if [ ! -d $dns ]; then
	echo "== unpacking bind9, knot, pdns-server, unbound"
	mkdir -p "$work/archives/partial" "$work/dns" "${dns%/*}"
	# With the libraries of theirs that this machine does not have.
	apt-get install --download-only --reinstall -y -qq --no-install-recommends -o APT::Sandbox::User=root -o Dir::Cache::archives="$work/archives" \
		bind9 bind9-libs knot libknot13 libdnssec9 libzscanner4 pdns-server pdns-backend-sqlite3 unbound >/dev/null
	for package in "$work"/archives/*.deb; do
		dpkg-deb -x "$package" "$work/dns"
	done
	chmod 755 "$work/dns"
	mv "$work/dns" $dns
fi
if [ ! -d $prometheus ]; then
	echo "== unpacking prometheus"
	(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb prometheus)
	mkdir -p "${prometheus%/*}"
	mv "$work/prometheus" $prometheus
fi
if [ ! -d $chromium ]; then
	echo "== unpacking chromium"
	mkdir -p "$work/browser/partial" "$work/chromium" "${chromium%/*}"
	apt-get install --download-only --reinstall -y -qq --no-install-recommends -o APT::Sandbox::User=root -o Dir::Cache::archives="$work/browser" \
		chromium fonts-liberation >/dev/null
	for package in "$work"/browser/*.deb; do
		dpkg-deb -x "$package" "$work/chromium"
	done
	chmod 755 "$work/chromium"
	mv "$work/chromium" $chromium
fi
