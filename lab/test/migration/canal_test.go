package migration

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// besideCanal finds what Calico's network leaves on a node that runs Calico's agent and plugin for Canal as well.
const besideCanal = `ip -o link show | grep vxlan.calico; ip route show table all | grep -E 'vxlan.calico|blackhole';
	ls /etc/cni/net.d | grep -E '10-calico|theseus'; iptables-save | grep -E 'THESEUS|theseus'; true`

// canalTraces finds what Canal leaves on a node that runs Calico.
const canalTraces = `ip -o link show | grep flannel; ip route show table all | grep flannel;
	ls /etc/cni/net.d | grep canal; ls -d /run/flannel /var/lib/cni/networks/k8s-pod-network 2>/dev/null;
	iptables-save | grep -E 'FLANNEL|flanneld|theseus'; true`

// countFelixes notes on a node when more than one Felix runs there, from a process that outlives the command. A child
// of Felix has its name until it executes a command, and does not count, nor do the kubelet's probes (-felix-ready).
const countFelixes = `cat >/run/count-felixes <<'END'
while sleep 0.05; do
	all=$(pgrep -xf "calico-nod[e] -felix"); set -- $all
	[ $# -gt 1 ] || continue
	own=
	for pid in $all; do
		parent=$(awk '/^PPid:/ {print $2}' /proc/$pid/status 2>/dev/null)
		tr '\0' ' ' 2>/dev/null </proc/$pid/cmdline | grep -qx "calico-node -felix " || continue
		tr '\0' ' ' 2>/dev/null </proc/${parent:-0}/cmdline | grep -qx "calico-node -felix " || own="$own $pid"
	done
	set -- $own
	[ $# -lt 2 ] || echo "$(date +%T.%N)$own"
done >/run/two-felixes
END
	setsid sh /run/count-felixes >/dev/null 2>&1 </dev/null &
	pgrep -xfa "calico-nod[e] -felix"`

// oneFelix demands that countFelixes noted nothing so far.
func oneFelix(t *testing.T, rig *scenario.Rig, when string) {
	t.Helper()
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", `pgrep -f "count-felixe[s]" >/dev/null &&
			cat /run/two-felixes && pgrep -xfa "calico-nod[e] -felix"`)
		t.Logf("%s, Felix on %s (%v): %s", when, node, err, out)
		if noted := strings.Count(out, "\n"); err != nil || noted != 1 {
			t.Errorf("%s, two Felixes ran at once on %s, or none runs", when, node)
		}
	}
}

// TestCanal: flannel's agent and Calico's in one DaemonSet are taken back to from the middle of a change, and left for
// good. On each node, only one Felix enforces policy for the pods of both networks.
func TestCanal(t *testing.T) {
	rigtest.Full(t, "Canal to Calico, back and there again: seven minutes")
	rig := rigtest.New(t, bin, "cn", 2, "canal", "--bake", "1s")
	rig.Network = "canal"
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "ippools,ds", "-A", "-o", "yaml"},
			{"-n", "kube-system", "logs", "-l", "k8s-app=calico-node", "--tail", "40", "--prefix"},
			{"-n", "kube-system", "logs", "-l", "k8s-app=canal", "--all-containers", "--tail", "30", "--prefix"}} {
			out, err := rig.Kubectl(context.Background(), nil, args...)
			t.Logf("%v (%v)\n%s", args, err, out)
		}
	})
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", countFelixes)
		if t.Logf("Felix on %s: %s", node, out); err != nil {
			t.Fatal(err)
		}
	}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", "Move the pods of cn-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Calico's network", besideCanal)
	rigtest.Finds(t, rig, "canal")
	oneFelix(t, rig, "after the rollback")
	for _, kind := range []string{"clusterrole", "clusterrolebinding"} {
		out, err := rig.Kubectl(t.Context(), nil, "get", kind, "canal-cni-token", "--ignore-not-found")
		if err != nil || out != "" {
			t.Errorf("%s is left: %v %s", kind, err, out)
		}
	}

	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the migration")
	oneFelix(t, rig, "after the migration")
	for _, node := range rig.NodeNames() {
		if _, err := rig.OnNode(t.Context(), node, "sh", "-c",
			`kill $(pgrep -f "s[h] /run/count-felixes"); rm /run/count-felixes /run/two-felixes`); err != nil {
			t.Error(err)
		}
	}
	rigtest.NothingOn(t, rig, "Canal", canalTraces)
	rigtest.Finds(t, rig, "calico")
	rigtest.NothingLeft(t, rig, regexp.MustCompile("canal|flannel"))
}
