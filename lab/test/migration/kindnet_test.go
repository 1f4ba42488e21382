package migration

import (
	"regexp"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// kindnetTraces finds what kindnet leaves on a node. No pod of another network has an interface of such a name.
const kindnetTraces = `ip -o link show | grep veth; ls /etc/cni/net.d | grep kindnet; ls -d /run/cni-ipam-state /var/lib/cni/results/kindnet-* 2>/dev/null;
	ip route | grep 'via .* dev eth0' | grep -v default; iptables-save | grep -E 'KIND-MASQ|KUBE-ROUTER|theseus'; true`

// TestKindnet: kind's network, whose daemon a program of the lab plays, is taken back to from the middle of a change,
// and left for good. Its daemon masquerades what pods of Calico send each other, and the source of each request is
// what policy judges.
func TestKindnet(t *testing.T) {
	rigtest.Full(t, "kindnet to Calico, back and there again: six minutes")
	rig := rigtest.New(t, bin, "kn", 2, "kindnet", "--bake", "1s",
		"--accept", "cni/never-run=a program of the lab is in the place of kindnetd")
	rig.Network = "kindnet"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "Move the pods of kn-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.Finds(t, rig, "kindnet")

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	rigtest.NothingOn(t, rig, "kindnet", kindnetTraces)
	rigtest.Finds(t, rig, "calico")
	rigtest.NothingLeft(t, rig, regexp.MustCompile("kube-router|kindnet"))
}
