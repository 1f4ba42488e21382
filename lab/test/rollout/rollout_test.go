// Package rollout tests the rollout of a flag on a real cluster with Calico: there and back under traffic, a wave
// that goes wrong, an agent that is killed, a flag's source that is cut off, and what must be refused.
package rollout

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them, and these tests are of no other.
const bin = "../../../bin"

// rules prints, for a node, how many of Calico's chains there are in iptables and tables in nftables, and whatever
// Theseus left.
const rules = `echo iptables $( (iptables-nft-save; iptables-legacy-save) 2>/dev/null | grep -c '^:cali-') \
	nftables $(nft list tables | grep -c 'calico$') left $( (iptables-nft-save; ipset list -n; nft list tables) | grep -cE 'theseus|^:thli|^thli')`

// strange says what of the rules of a node is not in one data plane alone, or is left of Theseus; empty when nothing
// is.
func strange(t *testing.T, rig *scenario.Rig, node, plane string) string {
	t.Helper()
	out, err := rig.OnNode(t.Context(), node, "sh", "-c", rules)
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Fields(out) // iptables N nftables N left N
	if len(has) != 6 || (has[1] != "0") != (plane == "iptables") ||
		(has[3] != "0") != (plane == "nftables") || has[5] != "0" {
		return fmt.Sprintf("%s is to be in %s alone: %s", node, plane, out)
	}
	return ""
}

// in demands that the rules of every node are in one data plane, and nothing is left of the other or of Theseus.
func in(t *testing.T, rig *scenario.Rig, plane string) {
	t.Helper()
	for _, node := range rig.NodeNames() {
		if what := strange(t, rig, node, plane); what != "" {
			t.Error(what)
		}
	}
}

// configurations are the names of all FelixConfigurations, with the value of the flag.
func configurations(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, "get", "felixconfigurations", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.spec.nftablesMode} {end}`)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// plan writes a plan, and returns its file.
func plan(t *testing.T, rig *scenario.Rig, name string, args ...string) string {
	t.Helper()
	file := filepath.Join(rig.Dir, name+".yaml")
	args = append(args, "--agent-image", scenario.AgentImage, "--probe-interval", "20ms", "-o", file,
		"--accept", scenario.FelixAlone)
	if _, err := rig.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	return file
}

// nothingLost demands that the clients lost nothing and that nothing that policy denies came through.
func nothingLost(t *testing.T, rig *scenario.Rig, when string) {
	t.Helper()
	cost := rigtest.NothingLost(t, rig, time.Minute, when)
	t.Logf("%s: nothing lost or leaked of %d requests", when, cost.Sent())
}

// calico brings a cluster on Calico up, with its rules in iptables, and clients that use it.
func calico(t *testing.T, name string, nodes int) *scenario.Rig {
	t.Helper()
	rig := rigtest.New(t, bin, name, nodes, "calico")
	rig.WorldRate = 25
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	in(t, rig, "iptables")
	return rig
}

// set writes the flag into a FelixConfiguration.
func set(t *testing.T, rig *scenario.Rig, name, value string) {
	t.Helper()
	text := fmt.Sprintf(
		`{"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration", "metadata": {"name": %q}, "spec": {"nftablesMode": %q}}`,
		name, value)
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(text), "apply", "--server-side",
		"--force-conflicts", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestThereAndBack goes to nftables, while Felix is killed in the middle of a switch, and while the source of its flags
// is cut off, and back to iptables, while a node joins; what was refused before, and what drifts after.
func TestThereAndBack(t *testing.T) {
	rigtest.Full(t, "a data plane there and back, under faults")
	rig := calico(t, "ro", 2)
	refused(t, rig)
	there(t, rig)
	back(t, rig)
	drift(t, rig)
}

// refused: what is misspelt is not planned, and neither is what an environment variable would hide.
func refused(t *testing.T, rig *scenario.Rig) {
	rigtest.Run(t, rig, "here", 1, []string{"nftablesMode=Enabeld", "would ignore it and use Disabled"},
		"flags", "rollout", "nftablesMode=Enabeld", "--agent-image", scenario.AgentImage)
	rigtest.Run(t, rig, "here", 1, []string{"did you mean calico/nftablesMode?"}, "flags", "rollout",
		"nftableMode=Enabled", "--agent-image", scenario.AgentImage)

	agents := func(args ...string) {
		t.Helper()
		if out, err := rig.Kubectl(t.Context(), nil, append([]string{"-n", "kube-system"}, args...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	agents("patch", "daemonset", "calico-node", "-p",
		`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	agents("set", "env", "daemonset/calico-node", "-c", "calico-node", "FELIX_NFTABLESMODE=Disabled")
	rigtest.Run(t, rig, "here", 1,
		[]string{"FELIX_NFTABLESMODE=Disabled in DaemonSet/kube-system/calico-node overrides every FelixConfiguration"},
		"plan", "--dataplane", "nftables", "--agent-image", scenario.AgentImage, "--accept",
		scenario.FelixAlone)
	agents("set", "env", "daemonset/calico-node", "-c", "calico-node", "FELIX_NFTABLESMODE-")
	agents("patch", "daemonset", "calico-node", "-p", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
}

// there is the way itself.
func there(t *testing.T, rig *scenario.Rig) {
	file := plan(t, rig, "there", "plan", "--dataplane", "nftables", "--waves", "1,0", "--bake", "3s")
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Until("set nftablesMode=Enabled for ro-node-1")
	if out, err := rig.OnNode(t.Context(), "ro-node-1", "pkill", "-KILL", "-f", "^calico-node -felix"); err != nil {
		t.Errorf("Felix was not killed: %v %s", err, out)
	}
	run.Until("Switch ro-node-2 to nftables")
	rigtest.HoldAPIServer(t, rig, 10*time.Second)
	run.Ends(0, "check that traffic passes the rules in nftables on ro-node-2", "finished: done")
	nothingLost(t, rig, "iptables to nftables")
	in(t, rig, "nftables")
	if got := configurations(t, rig); got != "default=Enabled" {
		t.Errorf("the value was not folded back: %s", got)
	}
}

// back is the way back. A node that joins meanwhile is in no wave, and the run waits until it is gone.
func back(t *testing.T, rig *scenario.Rig) {
	file := plan(t, rig, "back", "flags", "rollout", "nftablesMode=Disabled", "--waves", "1,0", "--bake", "3s")
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Until("Switch ro-node-1 to iptables")
	// Nothing of the clients' moves there.
	added, err := rig.InLab(t.Context(), "node", "add", "--taint", "test/joins=true:NoSchedule")
	if err != nil {
		t.Fatal(err)
	}
	node := strings.TrimSpace(added)
	run.Until("node " + node + " joined since the plan was made")
	if _, err := rig.InLab(t.Context(), "node", "remove", node); err != nil {
		t.Fatal(err)
	}
	run.Ends(0, "finished: done")
	nothingLost(t, rig, "nftables to iptables")
	in(t, rig, "iptables")
}

// drift: a Felix that hangs does not take what is wanted, and somebody has changed a node behind Felix' back. Both are
// seen, by node.
func drift(t *testing.T, rig *scenario.Rig) {
	for node, harm := range map[string][]string{
		"ro-node-1": {"sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward"},
		"ro-node-2": {"pkill", "-STOP", "-f", "^calico-node -felix"},
	} {
		if out, err := rig.OnNode(t.Context(), node, harm...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	set(t, rig, "node.ro-node-2", "Enabled")
	run := rigtest.Start(t, rig, "here", "flags", "verify", "nftablesMode", "ipForwarding", "ipv6Support", "bgp",
		"--agent-image", scenario.AgentImage)
	run.Ends(3, `drift on ro-node-1: ipForwarding: net.ipv4.ip_forward is "0", not 1`,
		"drift on ro-node-2: nftablesMode: the agent runs with Disabled; the kernel has rules in "+
			"iptables, not in nftables alone")
	if strings.Count(run.Said(), "drift on") != 2 {
		t.Errorf("something else drifts:\n%s", run.Said())
	}
}

// featureFlag is an object that gives nodes an interval by a rule.
func featureFlag(rule string) string {
	return `{"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "metadata": {"name": "net", "namespace": "default"}, "spec": {"flagSpec": {"flags": {
		"refresh": {"state": "ENABLED", "metadata": {"knob": "iptablesRefreshInterval"}, "variants": {"old": "180s", "new": "60s"}, "defaultVariant": "old", "targeting": ` + rule + `}}}}}`
}

// TestFlag lets a FeatureFlag in the cluster say which nodes get a value that leaves their rules where they are: one,
// then all. Each Felix starts again by itself, and says so. The object goes in the middle of a run, which goes on with
// what the plan keeps.
func TestFlag(t *testing.T) {
	rigtest.Full(t, "the rollout of a flag by a FeatureFlag that goes in the middle: three minutes")
	rig := rigtest.New(t, bin, "rf", 2, "calico")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	object := func(text string) {
		t.Helper()
		var out string
		var err error
		for range 100 { // until the definition serves
			if out, err = rig.Kubectl(t.Context(), strings.NewReader(text), "apply", "-f", "-"); err == nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	intervals := func(want string) {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), nil, "get", "felixconfigurations", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.spec.iptablesRefreshInterval} {end}`)
		if err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s, %v, want %s", out, err, want)
		}
	}
	rigtest.Run(t, rig, "here", 1, []string{"kube-proxy would have to be " +
		"removed"}, "flags", "rollout", "bpfEnabled=true",
		"--agent-image", scenario.AgentImage)

	object(rigtest.FeatureFlags)
	object(featureFlag(`{"if": [{"in": [{"var": "node"}, ["rf-node-1"]]}, "new"]}`))
	// Its gates bear what a busy machine loses now and then: the clients are to lose nothing.
	rollout := []string{"flags", "rollout", "--flags", "k8s:default/net", "--bake", "3s",
		"--max-lost", "3", "--max-gap", "5s"}
	file := plan(t, rig, "one", rollout...)
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Until("Measure the network before the change")
	if _, err := rig.Kubectl(t.Context(), nil, "delete", "featureflag", "net"); err != nil {
		t.Fatal(err)
	}
	run.Until("flags of k8s:default/net: STALE: ")
	run.Ends(0, "the run continues with the values in the plan",
		"wait until the agent of rf-node-1 reports IptablesRefreshInterval=60000000000", "finished: done")
	if strings.Contains(run.Said(), "Switch rf-node-2") {
		t.Errorf("a node changes of which the flag did not say so:\n%s", run.Said())
	}
	intervals("default= node.rf-node-1=1m0s")
	rigtest.Run(t, rig, "here", 0, []string{"FelixConfiguration/node.rf-node-1", "no drift on 2 nodes"}, "flags",
		"verify", "iptablesRefreshInterval")

	object(featureFlag(`{"if": [true, "new"]}`))
	file = plan(t, rig, "all", rollout...)
	run = rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Ends(0, "wait until the agent of rf-node-2 reports IptablesRefreshInterval=60000000000", "finished: done")
	if strings.Contains(run.Said(), "Switch rf-node-1") {
		t.Errorf("a node that had it was touched again:\n%s", run.Said())
	}
	nothingLost(t, rig, "another interval")
	in(t, rig, "iptables")
	intervals("default=1m0s")
	intervalDrifts(t, rig)
}

// intervalDrifts: a Felix that hangs does not take what is wanted, which is seen in its log.
func intervalDrifts(t *testing.T, rig *scenario.Rig) {
	if out, err := rig.OnNode(t.Context(), "rf-node-2", "pkill", "-STOP", "-f", "^calico-node -felix"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := `{"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration", "metadata": {"name": "node.rf-node-2"}, "spec": {"iptablesRefreshInterval": "90s"}}`
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(text), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rigtest.Start(t, rig, "here", "flags", "verify", "iptablesRefreshInterval").Ends(3,
		"drift on rf-node-2: iptablesRefreshInterval: the agent runs with 1m0s")
}

// TestEnvironment changes a flag that the agents have from their DaemonSet's environment: the pods are made again one
// by one, and the DaemonSet replaces none by itself meanwhile.
func TestEnvironment(t *testing.T) {
	rigtest.Full(t, "the rollout of a flag in the environment of agents")
	rig := rigtest.New(t, bin, "re", 2, "calico")
	rig.WorldRate = 25 // a restart of Felix must not lose a connection that is masqueraded
	agents := func(args ...string) string {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), nil, append([]string{"-n", "kube-system"}, args...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(out)
	}
	agents("set", "env", "daemonset/calico-node", "-c", "calico-node", "FELIX_IPTABLESREFRESHINTERVAL=90")
	agents("rollout", "status", "daemonset/calico-node", "--timeout=2m")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := agents("get", "pods", "-l", "k8s-app=calico-node", "-o", "name")
	file := plan(t, rig, "environment", "flags", "rollout", "iptablesRefreshInterval=60s",
		"--waves", "1,0", "--bake", "3s")
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Ends(0, "restart the agent of DaemonSet kube-system/calico-node on re-node-1",
		"wait until the agent of re-node-2 reports IptablesRefreshInterval=60000000000", "finished: done")
	nothingLost(t, rig, "another environment")
	in(t, rig, "iptables")
	if got := agents("get", "daemonset", "calico-node", "-o",
		`jsonpath={.spec.updateStrategy.type} {.spec.template.spec.containers[?(@.name=="calico-node")].env[?(@.name=="FELIX_IPTABLESREFRESHINTERVAL")].value}`); got != "RollingUpdate 60" {
		t.Errorf("the DaemonSet is left with %s", got)
	}
	for _, pod := range strings.Fields(agents("get", "pods", "-l", "k8s-app=calico-node", "-o", "name")) {
		if strings.Contains(before, pod) {
			t.Errorf("%s was not made anew", pod)
		}
	}
	rigtest.Run(t, rig, "here", 0, []string{"iptablesRefreshInterval=60", "DaemonSet/kube-system/calico-node",
		"no drift on 2 nodes"}, "flags", "verify", "--agent-image", scenario.AgentImage)
}

// lossy makes the new rules of a node lose a tenth of what is forwarded, from when they come for as long as they are
// there: Felix takes a rule out that it does not know.
const lossy = `(until nft list table ip calico; do sleep 0.1; done
while nft list table ip calico; do
	nft list chain ip calico filter-cali-FORWARD | grep -q numgen || nft insert rule ip calico filter-cali-FORWARD numgen random mod 100 '<' 10 drop
	sleep 0.1
done) >/dev/null 2>&1 &`

// TestWrong: the new rules of the second node lose packets. That is found there and taken back there; the first keeps
// what it has proven, the third is not touched, and a person takes the whole back.
func TestWrong(t *testing.T) {
	rigtest.Full(t, "a wave that goes wrong")
	rig := calico(t, "rw", 3)
	before := configurations(t, rig)
	file := plan(t, rig, "wrong", "plan", "--dataplane", "nftables", "--waves", "1,0",
		"--bake", "5s", "--max-gap", "5s")
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Until("Switch rw-node-2 to nftables")
	if out, err := rig.OnNode(t.Context(), "rw-node-2", "sh", "-c", lossy); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run.Ends(6, "lost on changed nodes", "stop, because of rw-node-2", "undoing only this step",
		"undone: Switch rw-node-2 to nftables", "hint: ")
	if strings.Contains(run.Said(), "Switch rw-node-3") {
		t.Errorf("it went on to the third node:\n%s", run.Said())
	}
	if got := configurations(t, rig); !strings.Contains(got, "node.rw-node-1=Enabled") ||
		strings.Contains(got, "node.rw-node-2") {
		t.Errorf("not the second node alone was taken back: %s", got)
	}
	rigtest.Start(t, rig, "here", "rollback").Ends(5, "undone: Switch rw-node-1 to nftables")
	in(t, rig, "iptables")
	if after := configurations(t, rig); after != before {
		t.Errorf("the flag was %s, and is %s", before, after)
	}
}
