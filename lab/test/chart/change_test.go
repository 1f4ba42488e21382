package chart

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/scraped"
)

// TestChange moves a cluster from flannel to Calico by the chart and a Change: the controller makes the plan, and makes
// another one when the Change is edited. It runs the second one once kubectl has created the Approval of its hash. The
// clients lose nothing, and no pod restarts. A Prometheus scrapes the controller, and has the counts of the report. The
// cluster runs the oldest Kubernetes that the lab has.
func TestChange(t *testing.T) {
	rigtest.Full(t, "a migration by the chart and a Change on an older Kubernetes, its plan made twice (5 minutes)")
	versions := build.KubernetesVersions()
	t.Setenv("THESEUS_LAB_KUBERNETES", versions[len(versions)-1]) // the other tests run the first
	helm, err := rigtest.Program("helm")
	if err != nil {
		t.Fatal(err)
	}
	rig := rigtest.New(t, bin, "change", 2, "flannel")
	c := &cluster{Rig: rig, t: t, home: t.TempDir(), path: helm}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.pods()
	c.mustHelm(append([]string{"install", "theseus", chart, "--create-namespace", "--wait", "--timeout", "3m",
		"--set", "metrics.enabled=true"}, values...)...)
	prometheus := scraped.StartWithin(t, c.kubectl("", "get", "pods", "-l", selector, "-o",
		"jsonpath={.items[0].status.hostIP}")+":7112", rig.Lab, "exec", "--name", rig.Name, "--network", "--")

	c.applyChange(30)
	// there is no ConfigMap yet
	c.kubectl("", "wait", "--for=condition=Planned=false", "change/to-calico", "--timeout=60s")
	if why := c.changeSays(`{.status.conditions[?(@.type=="Planned")].reason}`); why != "ManifestMissing" &&
		why != "Planning" {
		t.Errorf("without the manifest, the Change says %s", why)
	}
	file, err := rig.ManifestFile(t.Context(), "calico")
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl("", "create", "configmap", "calico", "--from-file=calico.yaml="+file)
	c.kubectl("", "wait", "--for=condition=Planned", "change/to-calico", "--timeout=3m")
	first := c.changeSays("{.status.planHash}")
	c.applyChange(50)
	c.kubectl("", "wait", "--for=condition=Planned", "change/to-calico", "--timeout=3m")
	hash, migration := c.changeSays("{.status.planHash}"), c.changeSays("{.status.migration}")
	if hash == first || hash == "" {
		t.Fatalf("the plan is %s before the edit, and %s after it", first, hash)
	}
	said := c.kubectl("", "describe", "change", "to-calico")
	for _, part := range []string{hash, migration, "The point of no return", "theseus approve " + migration} {
		if !strings.Contains(said, part) {
			t.Errorf("kubectl describe does not say %q:\n%s", part, said)
		}
	}
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	rigtest.Run(t, rig, "laptop", 0, nil, "plan", "show", "--migration", migration, "-o", plan)
	c.grant(plan)
	user := c.kubectl("", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	// the approval of the withdrawn plan has no effect
	for name, of := range map[string]string{"old": first, "new": hash} {
		c.kubectl(fmt.Sprintf(
			`{apiVersion: theseus.dev/v1alpha1, kind: Approval, metadata: {name: %s, namespace: %s}, spec: {migration: %s, planHash: %q, user: %q}}`,
			name, namespace, migration, of, user), "create", "-f", "-")
	}
	c.kubectl("", "wait", "--for=condition=Approved", "change/to-calico", "--timeout=60s")
	watch := rigtest.Start(t, rig, "laptop", "watch", migration)
	watch.Until("Adopt the pods of change-node-1")
	c.applyChange(60)
	rigtest.Until(t, "the Change says that the edit has no effect", func() bool {
		return c.changeSays(`{.status.conditions[?(@.type=="Planned")].reason}`) == "EditedTooLate"
	})
	watch.Ends(0)
	report := filepath.Join(t.TempDir(), "report.json")
	rigtest.Run(t, rig, "laptop", 0, nil, "report", migration, "-o", report)
	prometheus.Agrees(report, false)
	prometheus.Alerts(nil, "TheseusProbesLost", "TheseusLongGap") // gates tolerate losses here
	prometheus.Panels(map[string]string{
		"theseus_migrations_degraded": "the migration needed no person",
	})

	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after an adoption by a Change")
	t.Logf("nothing lost of %d requests", cost.Sent())
	if after := c.pods(); !slices.Equal(before, after) {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s",
			strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	if events := c.kubectl("", "-n", "default", "get", "events", "--field-selector", "involvedObject.kind=Change",
		"-o", "name"); events == "" {
		t.Error("the Change has no events")
	}
	told := c.kubectl("", "-n", "default", "get", "events", "--field-selector",
		"involvedObject.kind=Node,reason=ChangeDone", "-o", "jsonpath={range .items[*]}{.involvedObject.name}"+
			" of {.related.name}: {.message}{\"\\n\"}{end}")
	for _, node := range rig.NodeNames() {
		if !strings.Contains(told, node+" of "+migration+": ") || !strings.Contains(told, "moved while they ran") {
			t.Errorf("%s has no event of its change:\n%s", node, told)
		}
	}
}

// applyChange applies the Change to Calico, with the number of probes that gates tolerate.
func (c *cluster) applyChange(maxLost int) {
	c.t.Helper()
	c.kubectl(fmt.Sprintf(
		`{apiVersion: theseus.dev/v1alpha1, kind: Change, metadata: {name: to-calico}, spec: {to: calico, strategy: adopt,
manifestFrom: {configMap: calico}, agentImage: %q, probeIntervalMillis: 20, maxLost: %d, maxGapMillis: 10000, bakeSeconds: 1}}`, scenario.AgentImage, maxLost), "apply", "-f", "-")
}

// changeSays is a field of the Change, as a JSONPath.
func (c *cluster) changeSays(path string) string {
	c.t.Helper()
	return c.kubectl("", "get", "change", "to-calico", "-o", "jsonpath="+path)
}
