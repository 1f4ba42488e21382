# Everything on a node that a network could leave something in: a line for each thing, beginning with its kind.
for tool in ip tc nft ipset iptables-nft-save ip6tables-nft-save iptables-legacy-save ip6tables-legacy-save ps; do
	command -v $tool >/dev/null || { echo "no $tool" >&2; exit 1; }
done
for link in /sys/class/net/*; do echo "link ${link##*/}"; done
for family in 4 6; do
	ip -$family rule | sed "s/^/rule$family /"
	ip -$family route show table all | sed "s/^/route$family /"
done
ip neigh show nud permanent | sed 's/^/neighbour /'
tc qdisc show | sed 's/^/qdisc /'
for side in ingress egress; do tc filter show dev eth0 $side | sed "s/^/filter $side /"; done
for save in iptables-nft ip6tables-nft iptables-legacy ip6tables-legacy; do
	$save-save 2>/dev/null | awk -v of=$save '/^\*/ { table = substr($0, 2) } /^:/ { print of, table, "chain", substr($1, 2), $2 } /^-A/ { print of, table, $0 }'
done
nft list tables | sed 's/^/nft /'
ipset list -n | sed 's/^/ipset /'
grep -rs '' /proc/sys/net | sed -e '/:$/d' -e 's|^/proc/sys/|sysctl |'
find /etc /opt /run /sys/fs/bpf /usr/local /usr/libexec /var/lib /var/log -maxdepth 5 \
	\( -path '/var/lib/containerd/*' -o -path '/run/containerd/*' -o -path '/var/lib/kubelet/*/*' -o -path '/run/theseus-lab/*' -o -path '/var/log/pods/*' \
	-o -path '/var/log/containers/*' -o -path '/var/lib/theseus-workload/*' \) -prune -o -print 2>/dev/null | sed 's/^/file /'
awk '{ for (i = 7; $i != "-"; i++); print "mount", $5, $(i + 1) }' /proc/self/mountinfo
ps -e -o comm= | sed 's/^/process /'
