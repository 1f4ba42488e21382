# Removes what flannel and kube-router leave on a node: links, configuration, rules and sets.
ip link delete flannel.1 2>/dev/null
ip link delete cni0 2>/dev/null
rm -rf /etc/cni/net.d/10-flannel.conflist /run/flannel

# forget TABLE CHAINS: takes the chains whose names match out of a table, and first what leads to them.
forget() {
	iptables -w -t "$1" -S | grep -E -- "^-A [A-Z]+ .*-j ($2)" | sed 's/^-A/-D/' | xargs -r -L1 iptables -w -t "$1"
	chains=$(iptables -w -t "$1" -S | sed -nE "s/^-N (($2).*)/\1/p")
	for chain in $chains; do iptables -w -t "$1" -F "$chain"; done
	for chain in $chains; do iptables -w -t "$1" -X "$chain"; done
}
forget filter 'KUBE-ROUTER-|KUBE-POD-FW-|KUBE-NWPLCY-|FLANNEL-'
forget nat 'FLANNEL-'
for set in $(ipset list -n | grep -E '^(KUBE-SRC-|KUBE-DST-|kube-router-)'); do ipset destroy "$set"; done

# A chain that is still there, or a rule that leads nowhere, must not pass for clean.
! iptables-save | grep -E 'KUBE-ROUTER-|KUBE-POD-FW-|KUBE-NWPLCY-|FLANNEL-'
