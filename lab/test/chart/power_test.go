package chart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// guests are pods on the node that loses power. No client asks them.
const guests = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: guest}, spec: {replicas: 8,
selector: {matchLabels: {app: guest}}, template: {metadata: {labels: {app: guest}}, spec: {nodeName: %s,
tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0, containers: [{name: main,
image: "theseus.dev/workload:lab", args: [serve, "--http=:8080", "--grace=0s"],
readinessProbe: {httpGet: {path: /ready, port: 8081}, periodSeconds: 1}}]}}}}`

// TestControllerLosesPower cuts the power of the controller's node while the pods of that node are adopted. Another pod
// of the controller takes the run over from the journal. The node comes back, and the run rolls back, since the probes
// to that node were lost. The application keeps off that node; it loses nothing, and its pods go on to run.
func TestControllerLosesPower(t *testing.T) {
	rigtest.Full(t, "a controller whose node loses power while that node's own pods are adopted: six minutes")
	helm, err := rigtest.Program("helm")
	if err != nil {
		t.Fatal(err)
	}
	rig := rigtest.New(t, bin, "power", 3, "flannel", "--waves", "1,1,0", "--max-lost", "50", "--max-gap", "10s",
		"--bake", "1s")
	rig.Strategy = "adopt"
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	c.mustHelm(append([]string{"install", "theseus", chart, "--create-namespace", "--wait", "--timeout", "3m"},
		values...)...)
	first, dead := c.pod()
	c.kubectl("", "taint", "node", dead, "test/power=true:NoSchedule")
	c.kubectl("", "-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns", "--field-selector",
		"spec.nodeName="+dead)
	c.kubectl(fmt.Sprintf(guests, dead), "-n", "default", "apply", "-f", "-")
	c.kubectl("", "-n", "default", "rollout", "status", "deployment/guest", "--timeout=90s")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := strings.Join(c.pods(), "\n")
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.grant(plan)
	laptop := rigtest.Start(t, rig, "laptop", "apply", plan, "--in-cluster", "--yes")
	laptop.Until("Adopt the pods of " + dead)
	c.power("kill", dead)
	cut := time.Now()
	rigtest.Within(t, 4*time.Minute, "a pod of the controller on another node holds the lock", func() bool {
		holder := c.kubectl("", "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}")
		return strings.Contains(holder, "theseus-controller@") && !strings.Contains(holder, first)
	})
	t.Logf("another controller has the run %s after the cut", time.Since(cut).Round(time.Second))
	time.Sleep(20 * time.Second) // it works on a cluster that lacks the node
	fmt.Fprintln(rig.Out, c.kubectl("", "get", "pods", "-o", "wide"))
	c.power("start", dead)
	code := laptop.Code()
	t.Logf("the run has ended %s after the cut, exit code %d", time.Since(cut).Round(time.Second), code)
	fmt.Fprintln(rig.Out, c.kubectl("", "get", "migrations", "-o", "jsonpath={.items[*].status.conditions}"))
	if code != 4 {
		t.Errorf("theseus ended with %d, want 4: rolled back", code)
	}
	c.kubectl("", "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "on the other nodes")
	t.Logf("nothing lost of %d requests on the other nodes", cost.Sent())
	if after := strings.Join(c.pods(), "\n"); before != after {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s", before, after)
	}
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	c.kubectl("", "-n", "default", "rollout", "status", "deployment/guest", "--timeout=90s")
	for _, address := range strings.Fields(c.kubectl("", "-n", "default", "get", "pods", "-l", "app=guest", "-o",
		"jsonpath={.items[*].status.podIP}")) {
		for _, node := range rig.NodeNames() {
			c.sh(node, "curl -sS -m 5 --retry 5 --retry-all-errors http://"+address+":8080/")
		}
	}
	rigtest.Run(t, rig, "third", 0, []string{dead}, "report")
}

// power cuts the power of a node, or gives it back.
func (c *cluster) power(verb, node string) {
	c.t.Helper()
	if _, err := c.InLab(c.t.Context(), "node", verb, node); err != nil {
		c.t.Fatal(err)
	}
	fmt.Fprintf(c.Out, "-- %s %s\n", verb, node)
}
