package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/image"
	"github.com/theseus-cni/theseus/lab/internal/phrase"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// older is the version of a controller that does not know every event of the journal.
const older = "v0.1.0"

// TestOlderController moves a cluster from flannel to Calico by the controller. Its agents start while no node has the
// rules of kube-proxy for the Service of the API server. In the middle, the chart is upgraded to a controller that
// cannot read the journal: it refuses, names the release that continues, and writes nothing. Once the chart is rolled
// back, the run goes on to its end. The clients lose nothing.
func TestOlderController(t *testing.T) {
	rigtest.Full(t, "a chart that is upgraded to a controller that cannot read the journal, and agents that start "+
		"without the Service of the API server: five minutes")
	helm, err := rigtest.Program("helm")
	if err != nil {
		t.Fatal(err)
	}
	tar := olderController(t)
	rig := rigtest.New(t, bin, "older", 2, "flannel", "--max-lost", "50", "--max-gap", "10s", "--bake", "1s")
	rig.Strategy = "adopt"
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	c.load(tar)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := strings.Join(c.pods(), "\n")
	c.withoutService()
	c.mustHelm(append([]string{"install", "theseus", chart, "--create-namespace", "--wait", "--timeout", "3m"},
		values...)...)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.grant(plan)
	restore := c.stopProxies()
	laptop := rigtest.Start(t, rig, "laptop", "apply", plan, "--in-cluster", "--yes")
	laptop.Until("is in the cluster")
	c.agentsStart()
	restore()

	laptop.Until("Start Calico next to flannel on older-node-1")
	c.upgradeToOlder()
	laptop.Ends(6, "(UnknownFormat): ")
	c.mustHelm("rollback", "theseus", "1")
	watch := rigtest.Start(t, rig, "elsewhere", "watch")
	watch.Ends(0)
	c.kubectl("", "wait", "--for=condition=Complete", "migrations", "--all", "--timeout=60s")
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after an adoption with a controller that could not read it")
	t.Logf("nothing lost of %d requests", cost.Sent())
	if after := strings.Join(c.pods(), "\n"); before != after {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s", before, after)
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
}

// olderController builds the controller of this checkout as a release that does not know the event that ends a step,
// and returns its image.
func olderController(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir, replaced := t.TempDir(), map[string]string{}
	for file, edit := range map[string]phrase.Edit{
		"internal/run/engine/replay.go": {From: "GateAnswer, StepDone, StepUndone:", To: "GateAnswer, StepUndone:"},
		"internal/cli/version/version.go": {From: `if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"`, To: "{\n\t\tb.Version = \"" + older + "\""},
	} {
		source := filepath.Join(root, file)
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		edited, err := phrase.Apply(string(text), []phrase.Edit{edit})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		replaced[source] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replaced[source], []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w",
		"-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "controller"),
		"./cmd/theseus-controller")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building an older controller: %v\n%s", err, out)
	}
	tar := filepath.Join(dir, "image.tar")
	if err := image.ControllerOf(tar, filepath.Join(dir, "controller"), older); err != nil {
		t.Fatal(err)
	}
	return tar
}

// load gives an image to all nodes.
func (c *cluster) load(tar string) {
	c.t.Helper()
	for _, node := range c.NodeNames() {
		file, err := os.Open(tar)
		if err != nil {
			c.t.Fatal(err)
		}
		load := exec.CommandContext(c.t.Context(), c.Lab, "node", "exec", "--name", c.Name, node, "--", "ctr", "-n",
			"k8s.io", "images", "import", "-")
		load.Stdin = file
		out, err := load.CombinedOutput()
		file.Close() //nolint:errcheck // only read
		if err != nil {
			c.t.Fatalf("%s: %v\n%s", node, err, out)
		}
	}
}

// rules prints how many rules of kube-proxy a node has for the Service of the API server.
const rules = `iptables-save -t nat | grep -c -- '-A KUBE-SERVICES .*default/kubernetes:https' || true`

// stopProxies stops kube-proxy on all nodes, and deletes its rules for the Service of the API server, which it then
// does not write again. It returns what lets kube-proxy go on, once the test has found that the rules are still away.
func (c *cluster) stopProxies() (restore func()) {
	c.t.Helper()
	address := c.kubectl("", "-n", "default", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	for _, node := range c.NodeNames() {
		c.sh(node, `set -o pipefail; kill -STOP $(cat /run/theseus-lab/kube-proxy.pid); iptables-save -t nat | `+
			`grep -- '-A KUBE-SERVICES .*default/kubernetes:https' | sed 's/^-A/-D/' | xargs -L 1 iptables -t nat`)
		reach := "curl -k -s -m 2 https://" + address + "/version >/dev/null && echo yes || echo no"
		if got := c.sh(node, reach); got != "no" {
			c.t.Fatalf("%s reaches the Service of the API server without the rules of kube-proxy", node)
		}
	}
	fmt.Fprintln(c.Out, "-- kube-proxy is stopped, and no node reaches the Service of the API server")
	return func() {
		c.t.Helper()
		for _, node := range c.NodeNames() {
			if left := c.sh(node, rules); left != "0" {
				c.t.Errorf("%s has %s rules of the Service again, too early", node, left)
			}
			c.sh(node, "kill -CONT $(cat /run/theseus-lab/kube-proxy.pid)")
			if _, err := c.InLab(c.t.Context(), "node", "kill", "--component", "kube-proxy", node); err != nil {
				c.t.Fatal(err)
			}
			rigtest.Until(c.t, "kube-proxy has written its rules on "+node,
				func() bool { return c.sh(node, rules) != "0" })
		}
		fmt.Fprintln(c.Out, "-- kube-proxy runs again")
	}
}

// agentsStart waits until the agents of all nodes are ready.
func (c *cluster) agentsStart() {
	c.t.Helper()
	begun := time.Now()
	rigtest.Until(c.t, "the agents are ready", func() bool {
		return strings.Contains(c.kubectl("", "get", "daemonsets", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.numberReady};{end}`), "agent "+fmt.Sprint(c.Nodes)+";")
	})
	c.t.Logf("without the Service of the API server, the agents of all nodes are ready after %s",
		time.Since(begun).Round(time.Second))
}

// upgradeToOlder upgrades the chart to the older controller, and waits until it has refused the run.
func (c *cluster) upgradeToOlder() {
	c.t.Helper()
	c.mustHelm(append([]string{"upgrade", "theseus", chart, "--set", "image.tag=" + older}, values...)...)
	degraded := func(field string) string {
		return c.kubectl("", "get", "migrations", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Degraded")].`+
			field+`}`)
	}
	rigtest.Until(c.t, "the older controller refuses the run", func() bool {
		return degraded("reason") == "UnknownFormat"
	})
	said := degraded("message")
	c.t.Logf("the older controller says: %s", said)
	for _, part := range []string{" wrote this migration, and this is " + older, "theseus resume",
		"install its chart"} {
		if !strings.Contains(said, part) {
			c.t.Errorf("the condition does not say %q: %s", part, said)
		}
	}
	journal := func() string { return c.kubectl("", "get", "journalpages", "-o", "yaml") }
	before := journal()
	time.Sleep(20 * time.Second) // several turns of the controller
	if after := journal(); after != before {
		c.t.Errorf("the older controller has written to the journal:\n%s\nand after\n%s", before, after)
	}
	events := c.kubectl("", "get", "events", "--field-selector", "involvedObject.kind=Migration,reason=UnknownFormat",
		"-o", `jsonpath={range .items[*]}{.count}{.series.count} {.message}{"\n"}{end}`)
	c.t.Logf("events: %s", events)
	if strings.Count(events, "wrote this migration") != 1 || !strings.HasPrefix(events, "1 ") {
		c.t.Errorf("not one event says which release continues: %q", events)
	}
	rigtest.Run(c.t, c.Rig, "third", 0, []string{older}, "status")
}
