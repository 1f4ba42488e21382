// Package chart tests the chart and the controller in a lab: Helm installs them, and the controller replaces the
// network of the cluster that it runs in.
package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

const (
	// bin holds the built programs: `make build` makes them.
	bin       = "../../../bin"
	chart     = "../../../charts/theseus"
	namespace = "theseus-system"
	selector  = "app.kubernetes.io/name=theseus-controller"
	// user is the user of the controller's processes.
	user = "65532"
)

// cluster is a lab with the chart.
type cluster struct {
	*scenario.Rig
	t    *testing.T
	home string // folder of Helm's files
	path string // of the program helm
}

// TestChart moves a cluster from flannel to Calico by the controller alone: the command that handed the plan over is
// killed after the first step. Meanwhile a laptop takes the run over and gives it back, the controller is killed,
// deleted while a quota refuses its successor, and upgraded, an uninstall is refused, the Service of the API server is
// cut off, and the cluster is frozen for a moment. The clients lose nothing, and no pod restarts.
func TestChart(t *testing.T) {
	rigtest.Full(t, "a plan that is handed over to the controller, whose chart is upgraded and whose cluster is "+
		"frozen in the middle: six minutes")
	helm, err := rigtest.Program("helm") // before the lab starts: a compiler would slow it down
	if err != nil {
		t.Fatal(err)
	}
	rig := rigtest.New(t, bin, "chart", 2, "flannel", "--max-lost", "50", "--max-gap", "10s", "--bake", "1s")
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	rig.Strategy = "adopt"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.pods()
	c.withoutService()
	c.mustHelm(append([]string{"install", "theseus", chart, "--create-namespace", "--wait", "--timeout", "3m"},
		values...)...)
	// --wait has waited
	c.kubectl("", "wait", "--for=condition=Available", "deployment/theseus-controller", "--timeout=5s")
	if args := c.kubectl("", "get", "deployment", "theseus-controller", "-o",
		"jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args, "--first-api-server=") {
		t.Errorf("Helm did not find the addresses of the API server: %s", args)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	laptop := rigtest.Start(t, rig, "laptop", "apply", plan, "--in-cluster", "--yes")
	laptop.Until("is in the cluster")
	watch := rigtest.Start(t, rig, "elsewhere", "watch")
	laptop.Until("RightsMissing")
	c.grant(plan)
	laptop.Until("Create the CRDs of Calico")
	laptop.Kill()
	for _, disturbance := range []struct {
		at string // a line that is watched
		do func()
	}{
		{"Start Calico next to flannel on chart-node-1", c.uninstallIsRefused},
		{"Adopt the pods of chart-node-1", c.handOver},
		{"Start Calico next to flannel on chart-node-2", c.upgrade},
		{"Adopt the pods of chart-node-2", c.refuseController},
		{"Use Calico for new pods on chart-node-2", c.flushService},
	} {
		watch.Until(disturbance.at)
		disturbance.do()
	}
	c.freeze(watch)
	watch.Ends(0)

	c.kubectl("", "wait", "--for=condition=Complete", "migrations", "--all", "--timeout=60s")
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after an adoption by the controller")
	t.Logf("nothing lost of %d requests", cost.Sent())
	if after := c.pods(); !slices.Equal(before, after) {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s",
			strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	if events := c.kubectl("", "get", "events", "--field-selector", "involvedObject.kind=Migration",
		"-o", "name"); events == "" {
		t.Error("the Migration has no events")
	}
	// it has what it watched
	rigtest.Run(t, rig, "elsewhere", 0, nil, "report", "-o", filepath.Join(t.TempDir(), "report.html"))
	rigtest.Run(t, rig, "third", 0, []string{", done"}, "status")
	c.uninstall()
}

// values are those of the chart in the lab, whose nodes have the image.
var values = []string{"--set", "image.registry=localhost:1", "--set", "image.pullPolicy=Never"}

// helm runs Helm in Theseus' namespace, and returns what it printed on both streams.
func (c *cluster) helm(args ...string) (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.path,
		append(args, "--namespace", namespace, "--kubeconfig", filepath.Join(c.Dir, "kubeconfig"))...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+c.home, "HELM_CONFIG_HOME="+c.home, "HELM_DATA_HOME="+c.home)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	fmt.Fprintf(c.Out, "$ helm %s\n", strings.Join(args, " "))
	err := cmd.Run()
	c.Out.Write(said.Bytes()) //nolint:errcheck // for the reader
	return said.String(), err
}

// mustHelm runs Helm, which must succeed.
func (c *cluster) mustHelm(args ...string) {
	c.t.Helper()
	if out, err := c.helm(args...); err != nil {
		c.t.Fatalf("helm %s: %v\n%s\n%s", strings.Join(args, " "), err, out, c.state())
	}
}

// state shows the controller's pods, for errors.
func (c *cluster) state() string {
	text, _ := c.Kubectl(c.t.Context(), nil, "-n", namespace, "get", "pods", "-o", "wide")
	logs, _ := c.Kubectl(c.t.Context(), nil, "-n", namespace, "logs", "-l", selector, "--tail=30")
	return text + logs
}

// kubectl runs kubectl in Theseus' namespace, which must succeed, and returns what it printed.
func (c *cluster) kubectl(input string, args ...string) string {
	c.t.Helper()
	out, err := c.Kubectl(c.t.Context(), strings.NewReader(input), append([]string{"-n", namespace}, args...)...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// pods are the workload's pods: name, identity, address, restarts.
func (c *cluster) pods() []string {
	c.t.Helper()
	lines := strings.Split(c.kubectl("", "-n", workload.Namespace, "get", "pods", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.podIP} {.status.containerStatuses[*].restartCount}{"\n"}{end}`),
		"\n")
	slices.Sort(lines)
	return lines
}

// grant gives the controller the permissions for a plan.
func (c *cluster) grant(plan string) {
	c.t.Helper()
	roles, err := c.Run(c.t.Context(), "rights", "operate", "--plan", plan, "--for",
		"serviceaccount:"+namespace+"/theseus-controller")
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.Kubectl(c.t.Context(), strings.NewReader(roles), "apply", "-f", "-"); err != nil {
		c.t.Fatal(err)
	}
}

// sh runs a script on a node and returns what it printed.
func (c *cluster) sh(node, script string) string {
	c.t.Helper()
	out, err := c.OnNode(c.t.Context(), node, "bash", "-c", script)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", node, err, out)
	}
	return strings.TrimSpace(out)
}

// withoutService drops what the controller's user sends to the Service of the API server, on all nodes and from now on.
func (c *cluster) withoutService() {
	c.t.Helper()
	address := c.kubectl("", "-n", "default", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	for _, node := range c.NodeNames() {
		c.sh(node, "iptables -t raw -I OUTPUT -d "+address+" -p tcp --dport 443 -m owner --uid-owner "+user+" -j DROP")
	}
	fmt.Fprintf(c.Out, "-- user %s of every node cannot reach the Service %s\n", user, address)
}

// pod is the controller's pod that runs, once there is one, and its node.
func (c *cluster) pod() (name, node string) {
	c.t.Helper()
	rigtest.Until(c.t, "the controller has one pod, and it is ready", func() bool {
		fields := strings.Fields(c.kubectl("", "get", "pods", "-l", selector, "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`))
		if len(fields) != 3 || fields[2] != "True" {
			return false
		}
		name, node = fields[0], fields[1]
		return true
	})
	return name, node
}

// killController kills the controller's process; kubelet starts it again in the same pod.
func (c *cluster) killController() {
	c.t.Helper()
	name, node := c.pod()
	out := c.sh(node, `killed=0; for process in /proc/[0-9]*; do
		if tr '\0' ' ' <$process/cmdline | grep -q '^/theseus-controller run'; then kill -KILL ${process#/proc/}; killed=$((killed+1)); fi
		done 2>/dev/null; echo killed $killed`)
	if out != "killed 1" {
		c.t.Fatalf("%s: %s", node, out)
	}
	fmt.Fprintf(c.Out, "-- the controller's process in %s on %s is killed\n", name, node)
}

// deleteController deletes the controller's pod at once; its successor is another pod.
func (c *cluster) deleteController() {
	c.t.Helper()
	name, node := c.pod()
	c.kubectl("", "delete", "pod", name, "--grace-period=0", "--force")
	fmt.Fprintf(c.Out, "-- the controller's pod %s on %s is deleted\n", name, node)
}

// handOver takes the run to the machine that began it, which knows the plan, and gives it back.
func (c *cluster) handOver() {
	c.t.Helper()
	laptop := rigtest.Start(c.t, c.Rig, "laptop", "resume")
	rigtest.Until(c.t, "the laptop runs the migration", func() bool {
		holder := c.kubectl("", "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}")
		return holder != "" && !strings.Contains(holder, "theseus-controller")
	})
	fmt.Fprintln(c.Out, "-- the laptop runs the migration")
	laptop.Signal(syscall.SIGINT)
	laptop.Ends(130)
	back := rigtest.Start(c.t, c.Rig, "laptop", "resume", "--in-cluster")
	rigtest.Until(c.t, "the controller runs the migration again", func() bool {
		return strings.Contains(c.kubectl("", "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}"),
			"theseus-controller")
	})
	back.Kill()
}

// refuseController deletes the controller's pod while a quota admits no other one. Status says why no process continues
// the run. Without the quota, the Deployment gets its pod by itself.
func (c *cluster) refuseController() {
	c.t.Helper()
	c.kubectl("{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: 0}}}", "create", "-f",
		"-")
	rigtest.Until(c.t, "the quota is enforced", func() bool {
		return c.kubectl("", "get", "resourcequota", "none", "-o", "jsonpath={.status.used.pods}") != ""
	})
	c.deleteController()
	rigtest.Until(c.t, "status says why the controller does not run", func() bool {
		look := rigtest.Start(c.t, c.Rig, "third", "status")
		look.Ends(0)
		said := look.Said()
		return strings.Contains(said, "exceeded quota: none") && strings.Contains(said, "hint: raise the ResourceQuota")
	})
	c.kubectl("", "delete", "resourcequota", "none")
}

// upgrade upgrades the chart. The old pod stops after its action, and the new one goes on.
func (c *cluster) upgrade() {
	c.t.Helper()
	c.mustHelm(append([]string{"upgrade", "theseus", chart, "--set", "podAnnotations.upgraded=yes"}, values...)...)
}

// flushService deletes kube-proxy's rules for the Service of the API server on the controller's node, and kills the
// controller. When it runs again, kube-proxy is restarted, which writes its rules again.
func (c *cluster) flushService() {
	c.t.Helper()
	_, node := c.pod()
	out := c.sh(node,
		`set -o pipefail; iptables-save -t nat | grep -- '-A KUBE-SERVICES .*default/kubernetes:https' | sed 's/^-A/-D/' | xargs -L 1 iptables -t nat && echo deleted`)
	if out != "deleted" {
		c.t.Fatalf("%s: %s", node, out)
	}
	fmt.Fprintf(c.Out, "-- kube-proxy's rules for the Service of the API server are deleted on %s\n", node)
	c.killController()
	rigtest.Until(c.t, "the controller runs again without the Service of the API server", func() bool {
		return c.sh(node,
			`curl -fsS -m 1 http://127.0.0.1:7111/healthz >/dev/null 2>&1 && echo yes || echo no`) == "yes"
	})
	if _, err := c.InLab(c.t.Context(), "node", "kill", "--component", "kube-proxy", node); err != nil {
		c.t.Fatal(err)
	}
}

// freeze freezes the cluster until the run has paused. Then the run continues by itself.
func (c *cluster) freeze(watch *rigtest.Process) {
	c.t.Helper()
	c.kubectl("", "annotate", "namespace", namespace, "theseus.dev/freeze=a test")
	watch.Until("Paused=True (Frozen): frozen: a test")
	c.kubectl("", "annotate", "namespace", namespace, "theseus.dev/freeze-")
}

// uninstallIsRefused demands that Helm uninstalls nothing while the migration runs, and prints why. A rollback to the
// same revision then makes Helm upgrade the release again (docs/how-to/install.md).
func (c *cluster) uninstallIsRefused() {
	c.t.Helper()
	out, err := c.helm("uninstall", "theseus", "--timeout", "2m")
	if err == nil || !strings.Contains(out, "theseus-uninstall-check failed") || !strings.Contains(out, "hint: ") {
		c.t.Fatalf("helm uninstall in the middle of a migration: %v\n%s", err, out)
	}
	c.kubectl("", "get", "deployment/theseus-controller", "serviceaccount/theseus-controller",
		"clusterrole/theseus-controller")
	c.mustHelm("rollback", "theseus", "1")
}

// uninstall uninstalls the chart after the migration has ended. The journal stays.
func (c *cluster) uninstall() {
	c.t.Helper()
	c.mustHelm("uninstall", "theseus", "--timeout", "2m")
	left := c.kubectl("", "get",
		"deployments,serviceaccounts,jobs,poddisruptionbudgets,validatingadmissionpolicies,clusterroles", "-o", "name")
	for _, name := range []string{"theseus-controller", "theseus-uninstall-check", "theseus-approvals"} {
		if strings.Contains(left, name) {
			c.t.Errorf("%s is left:\n%s", name, left)
		}
	}
	if c.kubectl("", "get", "migrations", "-o", "name") == "" {
		c.t.Error("the uninstall has removed the journal")
	}
}
