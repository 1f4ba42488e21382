// Package guard runs theseus guard around commands on a real cluster under traffic.
package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/scraped"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// bin holds the built programs: `make build` makes them.
const bin = "../../../bin"

// cut stops forwarding on a node for three seconds, and with it every packet of its pods. No network puts rules of its
// own in front of this one in the table mangle.
const cut = drop + " && sleep 3; " + mend

// drop stops it.
const drop = "iptables -w -t mangle -I FORWARD 1 -j DROP"

// shut is a node's firewall, which drops what is sent to the prober of the node's own network by UDP.
const shut = "iptables -w -I INPUT 1 -p udp --dport 7101 -j DROP"

// mend lets a node forward again.
const mend = "iptables -w -t mangle -D FORWARD -j DROP"

// TestGuard: a harmless command is good; one that cuts off a node's pods until the way back of --on-loss restores them
// is a proven loss, which is named, and so is one during which a signal of --slo fails. They leave nothing behind but
// the journal, and a user's selectors match none of their pods. The firewall of a node shuts a port: that is told, and
// not waited for. A Prometheus scrapes the guards: it has the counts of the reports, and raises the alerts of the
// losses.
func TestGuard(t *testing.T) {
	rig := rigtest.New(t, bin, "gd", 2, "flannel")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	localDNS(t, rig)
	node := rig.NodeNames()[1]
	if out, err := rig.OnNode(t.Context(), node, "sh", "-c", shut); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	prometheus := scraped.Start(t)
	args := func(report string, more []string, command ...string) []string {
		return slices.Concat([]string{"guard", "--agent-image", scenario.AgentImage, "--probe-interval",
			"60ms", "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m",
			"--metrics", prometheus.Target, "-o", report}, more, []string{"--"}, command)
	}
	report := filepath.Join(rig.Dir, "harmless.html")
	made := fmt.Sprintf("%d made, %[1]d reachable after ", 2*len(rig.NodeNames()))
	rigtest.Run(t, rig, "here", 0, []string{"new pods before the change: " + made, "new pods after the change: " + made,
		"not measured: ", "drops UDP port 7101 of " + node + ": allow it", "good: the command succeeded",
		"not covered: ", "the report is " + report}, args(report, nil,
		rig.Lab, "kubectl", "--name", rig.Name, "annotate", "namespace", "default", "guarded=true", "--overwrite")...)
	nothingLeft(t, rig)
	rigtest.NothingLost(t, rig, time.Minute, "after the harmless command")
	prometheus.Alerts(nil)

	t.Cleanup(func() {
		if out, err := rig.OnNode(context.Background(), node, "sh", "-c", mend+" 2>/dev/null || true"); err != nil {
			t.Logf("%v: %s", err, out)
		}
	})
	// The way back of --on-loss ends the cut; the command ends when the losses are in the metrics.
	report = filepath.Join(rig.Dir, "cut.json")
	seen, onNode := filepath.Join(rig.Dir, "seen"), rig.Lab+" node exec --name "+rig.Name+" "+node+" -- "
	prometheus.NextRun()
	guard := rigtest.Start(t, rig, "here", args(report, []string{"--on-loss", onNode + mend}, "sh", "-c",
		onNode+drop+` && until [ -e "$0" ]; do sleep 0.2; done`, seen)...)
	guard.Until("the command of --on-loss has ended")
	prometheus.Settled()
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	guard.Ends(7, "LOSS: ", "running the command of --on-loss", "error: a loss is proven: ", "the worst: ", node+"/old")
	nothingLeft(t, rig)
	prometheus.Agrees(report, true)
	prometheus.Alerts([]string{"TheseusProbesLost", "TheseusLongGap"})
	prometheus.Panels(map[string]string{
		"theseus_tasks_total":         "a guard has no tasks of agents",
		"theseus_migrations_degraded": "the controller alone knows conditions of migrations",
	})
	var got struct {
		Change  struct{ Strategy string }
		Classes []struct {
			Name       string
			Sent, Lost int64
		}
		Verdict struct{ Notes []string }
	}
	if text, err := os.ReadFile(report); err != nil || json.Unmarshal(text, &got) != nil ||
		got.Change.Strategy != "guard" {
		t.Errorf("the report: %v, %d bytes", err, len(text))
	}
	if !slices.ContainsFunc(got.Verdict.Notes, func(note string) bool {
		return strings.HasPrefix(note, "Not measured: ") && strings.Contains(note, "UDP port 7101 of "+node)
	}) {
		t.Errorf("no note says that a port is shut: %q", got.Verdict.Notes)
	}
	// The cut ended what guards alone measure, too.
	for _, class := range []string{"local-service", "local-node-port", "host-port", "local-dns"} {
		if !slices.ContainsFunc(got.Classes, func(c struct {
			Name       string
			Sent, Lost int64
		}) bool {
			return c.Name == class && c.Lost > 0 && c.Lost < c.Sent
		}) {
			t.Errorf("no probe of the class %s was lost: %+v; notes %q", class, got.Classes, got.Verdict.Notes)
		}
	}

	// A service of the user's answers 503 for longer than the signals' interval of 5 s.
	down := filepath.Join(rig.Dir, "down")
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(down); err == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	// Meanwhile the cluster has objects of a user with selectors that would match the probes if they shared labels.
	ignoresSelectors(t, rig, func() {
		rigtest.Run(t, rig, "here", 7, []string{service.URL, "HTTP status 503"},
			args(filepath.Join(rig.Dir, "signal.html"), []string{"--slo", service.URL, "--sample-policies", "4"},
				"sh", "-c", `touch "$0"; sleep 8; rm "$0"`, down)...)
	})
	nothingLeft(t, rig)
}

// TestGuardJoins: a node that joins while the command runs is measured from then on, and what it loses later is a
// proven loss; nothing is lost before. Its probe pod is removed at the end.
func TestGuardJoins(t *testing.T) {
	rigtest.Full(t, "a guarded command that adds a node, and cuts it off once it is measured")
	rig := rigtest.New(t, bin, "gj", 2, "flannel")
	joins := rig.Name + "-node-3"
	command := strings.NewReplacer("LAB", rig.Lab, "NAME", rig.Name, "NODE", joins, "CUT", cut).Replace(
		"LAB node add --name NAME; until LAB kubectl --name NAME -n theseus-system get probeplan NODE; do sleep 1; " +
			"done; sleep 15; LAB node exec --name NAME NODE -- sh -c 'CUT'")
	report := filepath.Join(rig.Dir, "joins.json")
	rigtest.Run(t, rig, "here", 7, []string{"note: node " + joins + " has joined", "LOSS: ", joins + "/"},
		"guard", "--agent-image", scenario.AgentImage, "--probe-interval", "60ms", "--max-lost", "3",
		"--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m", "-o", report, "--", "sh", "-c", command)
	nothingLeft(t, rig)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Nodes []struct {
			Name string
			Sent int64
		}
		Gaps []struct {
			Path, Class string
			From        time.Time
		}
		Verdict struct{ Notes []string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(got.Nodes, func(n struct {
		Name string
		Sent int64
	}) bool {
		return n.Name == joins && n.Sent > 0
	}) || !slices.ContainsFunc(got.Verdict.Notes, func(note string) bool {
		return strings.HasPrefix(note, "Node "+joins+" joined, and its paths are measured since ")
	}) {
		t.Errorf("nodes %+v; notes %q", got.Nodes, got.Verdict.Notes)
	}
	for _, gap := range got.Gaps { // behind Services, its pod may be asked, too
		if !strings.Contains(gap.Path, joins) && !strings.Contains(gap.Class, "service") && gap.Class != "node-port" {
			t.Errorf("a gap of another node: %+v", gap)
		}
	}
}

// TestGuardLeaves: a node is scaled down while the command runs, in the order of an autoscaler: cordoned, drained with
// the probe pod on it, powered off, and its Node object deleted. The guard is good: new connections through a Service
// lose nothing, as its endpoint on the node goes before the node does, and what is lost because the node left is told
// and not counted. Then the same without a drain is a proven loss: Services still lead to the node.
func TestGuardLeaves(t *testing.T) {
	rigtest.Full(t, "guarded commands that scale a node down: in order, and without a drain")
	rig := rigtest.New(t, bin, "gv", 4, "flannel")
	nodes := rig.NodeNames()
	guard := func(code int, said, command, leaves string) leavesReport {
		t.Helper()
		command = strings.NewReplacer("LAB", rig.Lab, "NAME", rig.Name, "NODE", leaves).Replace(command)
		file := filepath.Join(rig.Dir, leaves+".json")
		rigtest.Run(t, rig, "here", code, []string{said}, "guard", "--agent-image", scenario.AgentImage,
			"--probe-interval", "60ms", "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "2m",
			"-o", file, "--", "sh", "-c", command)
		nothingLeft(t, rig)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got leavesReport
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v; gaps %+v; moments %+v; notes %q", leaves, got.Totals, got.Gaps, got.Moments, got.Verdict.Notes)
		return got
	}
	told := func(got leavesReport, leaves string) {
		t.Helper()
		if !slices.ContainsFunc(got.Verdict.Notes, func(note string) bool {
			return strings.HasPrefix(note, "Node "+leaves+" left the cluster. Not counted as lost: ") &&
				!strings.Contains(note, ": 0 probes")
		}) {
			t.Errorf("no note says that %s left: %q", leaves, got.Verdict.Notes)
		}
	}

	leaves := nodes[3]
	got := guard(0, "good: the command succeeded", "LAB kubectl --name NAME cordon NODE && sleep 5 && "+
		"LAB kubectl --name NAME drain NODE --force --ignore-daemonsets --delete-emptydir-data --timeout=120s && "+
		"LAB node kill --name NAME NODE && LAB kubectl --name NAME delete node NODE && sleep 20", leaves)
	if got.Totals.Sent == 0 || got.Totals.Lost > 3 {
		t.Errorf("%d of %d probes were lost: %+v", got.Totals.Lost, got.Totals.Sent, got.Gaps)
	}
	told(got, leaves)

	leaves = nodes[2]
	got = guard(7, "error: a loss is proven: ", "LAB kubectl --name NAME cordon NODE && sleep 5 && "+
		"LAB node kill --name NAME NODE && sleep 20 && LAB kubectl --name NAME delete node NODE && sleep 30", leaves)
	told(got, leaves)
	for _, gap := range got.Gaps {
		if strings.Contains(gap.Path, leaves) {
			t.Errorf("a gap of the node that left counts: %+v", gap)
		}
	}
}

// leavesReport is what TestGuardLeaves reads of a report.
type leavesReport struct {
	Totals  struct{ Sent, Lost int64 }
	Gaps    []gap
	Moments []struct {
		At         time.Time
		Kind, Text string
	}
	Verdict struct{ Notes []string }
}

// localDNS plays a node-local DNS cache: a DaemonSet without pods names its address, and every node leads queries to it
// to CoreDNS.
func localDNS(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	const address = "169.254.20.10"
	to := kubectl(t, rig, "-n", "kube-system", "get", "endpoints", "kube-dns", "-o",
		"jsonpath={.subsets[0].addresses[0].ip}")
	for _, node := range rig.NodeNames() {
		if out, err := rig.OnNode(t.Context(), node, "sh", "-c", "ip addr add "+address+"/32 dev lo && iptables -w -t "+
			"nat -I PREROUTING -d "+address+" -p udp --dport 53 -j DNAT --to-destination "+
			strings.TrimSpace(to)+":53"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(`{"apiVersion":"apps/v1","kind":"DaemonSet",
"metadata":{"name":"node-local-dns","namespace":"kube-system"},"spec":{"selector":{"matchLabels":{"a":"b"}},
"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"cache",
"image":"`+scenario.AgentImage+`","args":["-localip","`+address+`"]}]}}}}`), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestGuardNewPods: a CNI plugin that is missing on a node for a while costs no existing pod a packet, and is a proven
// loss: the new pods of the node get no network, and the kubelet's own reason is told. What was made is removed.
func TestGuardNewPods(t *testing.T) {
	rigtest.Full(t, "a guarded command during which new pods of one node get no network")
	rig := rigtest.New(t, bin, "gp", 2, "flannel")
	node := rig.NodeNames()[1]
	const plugin = "/opt/cni/bin/flannel"
	back := "mv " + plugin + ".away " + plugin
	t.Cleanup(func() {
		if out, err := rig.OnNode(context.Background(), node, "sh", "-c", back+" 2>/dev/null || true"); err != nil {
			t.Logf("%v: %s", err, out)
		}
	})
	report := filepath.Join(rig.Dir, "newpods.json")
	// With this interval of probes, a round of new pods begins every minute, and a pod has a minute to get an address.
	rigtest.Run(t, rig, "here", 7, []string{"new pods before the change: ", "NEW POD FAILED: " + node,
		"FailedCreatePodSandBox", "new pods after the change: ", "error: a loss is proven: new pods got no network"},
		"guard", "--agent-image", scenario.AgentImage, "--probe-interval", "60ms", "--max-lost", "3",
		"--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m", "-o", report, "--",
		rig.Lab, "node", "exec", "--name", rig.Name, node, "--", "sh", "-c",
		"mv "+plugin+" "+plugin+".away && sleep 170; "+back)
	nothingLeft(t, rig)
	samplesPolicies(t, rig)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Totals  struct{ Sent, Lost int64 }
		NewPods struct {
			Since  struct{ Ready, Failures int }
			Failed []struct{ Node, Why string }
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Totals.Sent == 0 || got.Totals.Lost > 3 {
		t.Errorf("existing pods lost %d of %d probes", got.Totals.Lost, got.Totals.Sent)
	}
	if n := got.NewPods; n.Since.Ready == 0 || n.Since.Failures == 0 || len(n.Failed) == 0 ||
		slices.ContainsFunc(n.Failed, func(p struct{ Node, Why string }) bool { return p.Node != node }) {
		t.Errorf("new pods: %+v", n)
	}
}

// samplesPolicies: connections between pods of the user's application are as policy has them while a harmless command
// runs; a policy that allows nothing cuts off the allowed ones, and one that allows everything lets the denied ones
// through: both are proven losses, and the connections are named.
func samplesPolicies(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl := []string{rig.Lab, "kubectl", "--name", rig.Name, "-n", workload.Namespace}
	guard := func(code int, texts []string, report string, command ...string) (changed map[string]string) {
		t.Helper()
		rigtest.Run(t, rig, "here", code, texts, slices.Concat([]string{"guard", "--agent-image", scenario.AgentImage,
			"--probe-interval", "60ms", "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m",
			"--sample-policies", "12", "-o", report, "--"}, kubectl, command)...)
		nothingLeft(t, rig)
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Samples struct {
				Allowed, Denied, Rounds int
				Changed                 []struct{ From, To, Policy, Change string }
				Contradicting           []struct{ From, To, Before string }
			}
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if s := got.Samples; s.Allowed == 0 || s.Denied == 0 || s.Allowed+s.Denied > 12 || s.Rounds == 0 ||
			len(s.Contradicting) > 0 {
			t.Errorf("%s: %+v", report, s)
		}
		changed = map[string]string{}
		for _, pair := range got.Samples.Changed {
			changed[pair.Policy+" "+pair.Change] = pair.To
		}
		return changed
	}
	changed := guard(0, []string{"(6 allowed and 6 denied by policy), opened from within",
		"pairs of pods before the change: ", "good: the command succeeded"},
		filepath.Join(rig.Dir, "sampled.json"), "annotate", "networkpolicy", "vault", "guarded=true")
	if len(changed) > 0 {
		t.Errorf("of a harmless command: %v", changed)
	}
	for _, test := range []struct{ ingress, verdict, change string }{
		{"[]", "allowed", "lost"}, {"[{}]", "denied", "leaked"}} {
		changed = guard(7, []string{"POLICY CHANGED: ", "error: a loss is proven: ", "sampled connection",
			"TCP 8080 (" + test.verdict + " by policy)"}, filepath.Join(rig.Dir, test.change+".json"), "patch",
			"networkpolicy", "vault", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/ingress","value":`+test.ingress+`}]`)
		to := changed[test.verdict+" "+test.change]
		if len(changed) != 1 || !strings.HasPrefix(to, workload.Namespace+"/vault-") {
			t.Errorf("of a policy that allows %s: %v", test.ingress, changed)
		}
	}
}

// nothingLeft waits until no pod, DaemonSet or Service of the probes is left. Pods of a deleted DaemonSet take some
// seconds to end.
func nothingLeft(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		left, err := rig.Kubectl(t.Context(), nil, "-n", "theseus-system", "get",
			"pods,daemonsets,services,networkpolicies", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		if left = strings.TrimSpace(left); left == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", left)
		}
	}
}

// TestGuardOthers: a guard that was started measures without a process. A moment in which a node's pods are cut off is
// a loss in its status, next to a mark, and a second machine stops it with the verdict. Another one, in which nothing
// happens, is good.
func TestGuardOthers(t *testing.T) {
	rigtest.Full(t, "a guard without a command, of what others change: three minutes")
	rig := rigtest.New(t, bin, "go", 2, "flannel")
	start := []string{"guard", "start", "--agent-image", scenario.AgentImage, "--probe-interval",
		"60ms", "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m"}
	begin := func() string {
		t.Helper()
		rigtest.Run(t, rig, "here", 0, []string{"measures until `theseus guard stop`"}, start...)
		rigtest.Run(t, rig, "here", 1, []string{"error: another migration has not ended",
			"theseus guard stop"}, start...)
		hash, err := rig.Kubectl(t.Context(), nil, "-n", "theseus-system", "get", "migrations.theseus.dev", "-o",
			"jsonpath={.items[?(@.status.phase==\"paused\")].spec.planHash}")
		if err != nil || strings.TrimSpace(hash) == "" {
			t.Fatalf("the plan's hash: %q, %v", hash, err)
		}
		return strings.TrimSpace(hash)
	}
	begin()
	rigtest.Run(t, rig, "here", 0, []string{"marked ", "nothing happens"}, "guard", "mark", "nothing happens")
	rigtest.Run(t, rig, "here", 0, []string{" 0 lost", "mark: nothing happens", "next: `theseus guard stop`"},
		"guard", "status")
	rigtest.Run(t, rig, "here", 0, []string{"good: nothing was lost"}, "guard", "stop")
	nothingLeft(t, rig)

	hash, node := begin(), rig.NodeNames()[1]
	t.Cleanup(func() {
		if out, err := rig.OnNode(context.Background(), node, "sh", "-c", mend+" 2>/dev/null || true"); err != nil {
			t.Logf("%v: %s", err, out)
		}
	})
	rigtest.Run(t, rig, "here", 0, nil, "guard", "mark", "the cut")
	if out, err := rig.OnNode(t.Context(), node, "sh", "-c", cut); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rigtest.Until(t, "the status shows the gap", func() bool {
		said, err := rig.Run(t.Context(), "guard", "status")
		return err == nil && strings.Contains(said, "gap: ")
	})
	rigtest.Run(t, rig, "there", 0, []string{"mark: the cut", "gap: ", "lost probe"}, "guard", "status")
	report := filepath.Join(rig.Dir, "others.json")
	rigtest.Run(t, rig, "there", 2, []string{"--expect HASH"}, "guard", "stop")
	rigtest.Run(t, rig, "there", 7, []string{"error: a loss is proven: ", "the report is " + report}, "guard", "stop",
		"--expect", hash, "-o", report)
	nothingLeft(t, rig)
	text, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(text), "the cut") ||
		!strings.Contains(string(text), `"kind": "gap"`) && !strings.Contains(string(text), `"kind":"gap"`) {
		t.Errorf("the report: %v, %d bytes", err, len(text))
	}
}
