package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKernelForward: where iptables' FORWARD drops what nobody accepts, Felix' accept counts while it stands in
// iptables. In a table of nftables' own it does not, and the commands that the check node/forwarding gives help.
func TestKernelForward(t *testing.T) {
	if !alone(t) {
		return
	}
	const router, far = "node-of-the-pod", "node-far-away"
	for _, name := range []string{router, far} {
		sh(t, "", "ip", "netns", "add", name)
		defer sh(t, "", "ip", "netns", "del", name)
	}
	for _, words := range []string{
		"link add eth0 type veth peer name calif4bee9a79a0 netns " + router,
		"-n " + router + " link add eth1 type veth peer name eth0 netns " + far, "address add 198.18.1.1/24 dev eth0",
		"link set eth0 up", "route add default via 198.18.1.2",
		"-n " + router + " address add 198.18.1.2/24 dev calif4bee9a79a0",
		"-n " + router + " link set calif4bee9a79a0 up", "-n " + router + " address add 198.18.2.1/24 dev eth1",
		"-n " + router + " link set eth1 up", "-n " + far + " address add 198.18.2.2/24 dev eth0",
		"-n " + far + " link set eth0 up", "-n " + far + " route add default via 198.18.2.1",
	} {
		sh(t, "", append([]string{"ip"}, strings.Fields(words)...)...)
	}
	on := func(input, command string) string {
		t.Helper()
		return sh(t, input, append([]string{"ip", "netns", "exec", router}, strings.Fields(command)...)...)
	}
	on("", "sysctl -qw net.ipv4.ip_forward=1")
	// reaches pings over a connection of the pod's, by its number.
	reaches := func(connection int) bool {
		peers := make([]string, connection)
		peers[connection-1] = "198.18.2.2"
		return measure(t.Context(), peers)[connection-1].MTU > 0
	}
	connection := 0
	for _, kind := range []string{"nft", "legacy"} {
		iptables := "iptables-" + kind
		// holds compares what the pod reaches, and what the agent would say of it.
		holds := func(when string, passes bool, policy string, want ...string) {
			t.Helper()
			if connection++; reaches(connection) != passes {
				t.Errorf("%s, %s: a new connection of the pod's gets through: %t", kind, when, !passes)
			}
			tables, err := parseSave(on("", iptables+"-save"))
			if err != nil {
				t.Fatal(err)
			}
			found, accepting := forward(tables)
			if diff := cmp.Diff(want, accepting); diff != "" || found != policy {
				t.Errorf("%s, %s: policy %s, accepting (-want +got):\n%s", kind, when, found, diff)
			}
		}
		const felix = `-m comment --comment "cali:S93hcgKJrXEqnTfs" -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT`
		on(golden(t, "ipset.save"), "ipset restore")
		on(golden(t, "iptables.save"), iptables+"-restore")
		on("", iptables+" -w -P FORWARD DROP")
		holds("Felix in iptables", true, "DROP", felix)
		before := connection

		on("", iptables+" -w -F")
		holds("nobody", false, "DROP")

		on(golden(t, "calico.nft"), "nft -f -")
		holds("Felix in nftables", false, "DROP")
		on("", iptables+" -w -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
		on("", iptables+" -w -A FORWARD -i docker0 ! -o docker0 -j ACCEPT")
		holds("Felix in nftables, and Docker", false, "DROP", "-i docker0 ! -o docker0 -j ACCEPT")
		if !reaches(before) {
			t.Errorf("%s: a connection that was there does not go on", kind)
		}
		for line := range strings.Lines(on("", "nft list chain ip calico filter-FORWARD")) {
			if strings.Contains(line, "Policy explicitly accepted packet.") && strings.Contains(line, "packets 0 ") {
				t.Errorf("%s: Felix accepted nothing, so this shows nothing of it: %s", kind, line)
			}
		}

		on("", iptables+" -w -A FORWARD -s 198.18.1.0/24 -j ACCEPT")
		on("", iptables+" -w -A FORWARD -d 198.18.1.0/24 -j ACCEPT")
		holds("the pods' range is accepted", true, "DROP", "-i docker0 ! -o docker0 -j ACCEPT",
			"-s 198.18.1.0/24 -j ACCEPT", "-d 198.18.1.0/24 -j ACCEPT")
		on("", iptables+" -w -F FORWARD")
		on("", iptables+" -w -P FORWARD ACCEPT")
		holds("the policy is ACCEPT", true, "ACCEPT")

		on("", "nft delete table ip calico")
		for _, table := range []string{"raw", "mangle", "nat", "filter"} {
			on("", iptables+" -w -t "+table+" -F")
			on("", iptables+" -w -t "+table+" -X")
		}
		on("", "ipset destroy")
	}
}

func TestAccepting(t *testing.T) {
	tables, err := parseSave(`*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:KUBE-FORWARD - [0:0]
:ufw-before-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-track-forward - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-track-forward
-A FORWARD -m conntrack --ctstate ESTABLISHED -j KUBE-FORWARD
-A FORWARD -m state --state NEW -s 10.0.0.0/8 -j ACCEPT
-A FORWARD ! -p icmp -m comment --comment "-p icmp" -j ACCEPT
-A FORWARD -m conntrack ! --ctstate ESTABLISHED -j NFQUEUE --queue-num 1
-A FORWARD -j REJECT --reject-with icmp-port-unreachable
-A DOCKER-USER -j RETURN
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-track-forward -p tcp -m conntrack --ctstate NEW -j ufw-user-forward
-A ufw-track-forward -m conntrack --ctstate DNAT,ESTABLISHED -j ACCEPT
COMMIT
`)
	if err != nil {
		t.Fatal(err)
	}
	policy, accepting := forward(tables)
	want := []string{"KUBE-FORWARD", "ufw-track-forward", "-m state --state NEW -s 10.0.0.0/8 -j ACCEPT",
		`! -p icmp -m comment --comment "-p icmp" -j ACCEPT`,
		"-m conntrack ! --ctstate ESTABLISHED -j NFQUEUE --queue-num 1"}
	if diff := cmp.Diff(want, accepting); diff != "" || policy != "DROP" {
		t.Errorf("policy %s, accepting (-want +got):\n%s", policy, diff)
	}
}
