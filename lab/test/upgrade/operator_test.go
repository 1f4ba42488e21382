package upgrade

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// operators are the releases of Calico's operator that make Calico, by the versions that they make.
var operators = map[string]string{"v3.30.1": "v1.38.1", "v3.31.0": "v1.40.0"}

// agents are the images of calico-node in the manifests of those.
var agents = map[string]string{"v3.30.1": "docker.io/calico/node:v3.30.1", "v3.31.0": "quay.io/calico/node:v3.31.0"}

const (
	system       = "calico-system"
	installation = `
apiVersion: v1
kind: Namespace
metadata: {name: calico-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: installations.operator.tigera.io}
spec:
  group: operator.tigera.io
  names: {kind: Installation, listKind: InstallationList, plural: installations, singular: installation}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`
)

// standIn is NOT Calico's operator, which cannot be had here. It does to Calico's objects what the operator does: by
// the release that its Deployment's pod runs, it makes all of Calico from one manifest, all at once, with the update
// strategy RollingUpdate, and writes back, every second, what others change. The Deployment, with its rights, is the
// release's own but for the program.
type standIn struct {
	t    *testing.T
	rig  *scenario.Rig
	made map[string]string // by the operator's release: definitions apart, what it makes
	defs map[string]string
	done sync.WaitGroup
}

// operate puts a lab's Calico, before anything runs on it, into the hands of a stand-in for its operator.
func operate(t *testing.T, rig *scenario.Rig, first string) {
	t.Helper()
	apply(t, rig, installation)
	kubectl(t, rig, "wait", "--for=condition=Established", "crd/installations.operator.tigera.io", "--timeout=60s")
	apply(t, rig, "apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n"+
		"spec: {variant: Calico}\n")
	uid := kubectl(t, rig, "get", "installation", "default", "-o", "jsonpath={.metadata.uid}")
	s := &standIn{t: t, rig: rig, made: map[string]string{}, defs: map[string]string{}}
	cidr := kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o", "jsonpath={.items[0].spec.cidr}")
	for calico, release := range operators {
		text, err := rig.Manifest(t.Context(), "calico-typha", "--calico", calico, "--pod-cidr", cidr)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(text, "\n---\n") {
			into := s.made
			if strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
				into = s.defs
			}
			into[release] += "---\n" + strings.NewReplacer("namespace: kube-system", "namespace: "+system,
				"- name: FELIX_TYPHAK8SSERVICENAME", "- name: FELIX_TYPHAK8SNAMESPACE\n              value: "+system+
					"\n            - name: FELIX_TYPHAK8SSERVICENAME",
				"kind: DaemonSet\napiVersion: apps/v1\nmetadata:\n",
				"kind: DaemonSet\napiVersion: apps/v1\nmetadata:\n"+
					"  ownerReferences: [{apiVersion: operator.tigera.io/v1, kind: Installation, name: default, uid: "+
					uid+", controller: true}]\n").Replace(document) + "\n"
		}
		for _, node := range rig.NodeNames() {
			if out, err := rig.OnNode(t.Context(), node, "ctr", "-n", "k8s.io", "images", "tag",
				"registry.k8s.io/pause:3.10", "quay.io/tigera/operator:"+release); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	kubectl(t, rig, "-n", "kube-system", "delete", "daemonset/calico-node", "deployment/calico-typha",
		"deployment/calico-kube-controllers", "configmap/calico-config", "service/calico-typha",
		"poddisruptionbudget/calico-typha", "poddisruptionbudget/calico-kube-controllers", "--cascade=foreground")
	apply(t, rig, operatorManifest(t, rig, first))
	ctx, stop := context.WithCancel(t.Context())
	s.done.Go(func() { s.run(ctx) })
	t.Cleanup(s.done.Wait)
	t.Cleanup(stop)
	for _, workload := range []string{"deployment/calico-typha", "daemonset/calico-node",
		"deployment/calico-kube-controllers"} {
		kubectl(t, rig, "-n", system, "wait", "--for=create", workload, "--timeout=120s")
		kubectl(t, rig, "-n", system, "rollout", "status", workload, "--timeout=180s")
	}
}

// run is the stand-in at work.
func (s *standIn) run(ctx context.Context) {
	now := ""
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
		images, err := s.rig.Kubectl(ctx, nil, "-n", "tigera-operator", "get", "pods", "-l", "name=tigera-operator",
			"--field-selector", "status.phase=Running", "-o",
			`jsonpath={range .items[?(@.status.containerStatuses[0].ready==true)]}{.spec.containers[0].image}{"\n"}{end}`)
		release := strings.TrimSpace(images[strings.LastIndex(strings.TrimSpace(images), ":")+1:])
		if err != nil || s.made[release] == "" || strings.Count(strings.TrimSpace(images), "\n") > 0 { // one leads
			continue
		}
		text := s.made[release]
		if release != now {
			text = s.defs[release] + text
		}
		if out, err := s.rig.Kubectl(ctx, strings.NewReader(text), "apply", "--server-side", "--force-conflicts",
			"--field-manager", "tigera-operator", "-f", "-"); err != nil && ctx.Err() == nil {
			s.t.Logf("the stand-in for the operator: %v\n%s", err, out)
			continue
		}
		now = release
	}
}

// operatorManifest is the operator's own, of the release that makes a version of Calico.
func operatorManifest(t *testing.T, rig *scenario.Rig, calico string) string {
	t.Helper()
	text, err := rig.Manifest(t.Context(), "tigera-operator", "--calico", calico)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func apply(t *testing.T, rig *scenario.Rig, text string) {
	t.Helper()
	if out, err := rig.Kubectl(t.Context(), strings.NewReader(text), "apply", "--server-side",
		"--force-conflicts", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// planOperator writes a plan for the operator that makes a version of Calico, and returns its file.
func planOperator(t *testing.T, rig *scenario.Rig, calico string) string {
	t.Helper()
	file := filepath.Join(rig.Dir, "plan.yaml")
	manifest, err := rig.ManifestFile(t.Context(), "tigera-operator", "--calico", calico)
	if err == nil {
		_, err = rig.Run(t.Context(), "plan", "--to", "calico", "--manifest", manifest,
			"--agent-image", scenario.AgentImage, "--waves", "1,0", "--bake", "3s", "--probe-interval", "20ms",
			"--max-lost", "3", "-o", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOperator upgrades a Calico that its operator owns, of which there is a stand-in alone (standIn): taken back from
// the middle, then to the end. The controller of the DaemonSet is denied what it tries meanwhile; without the hold it
// replaces all agents by itself.
func TestOperator(t *testing.T) {
	const before, after = "v3.30.1", "v3.31.0"
	rigtest.Full(t, "Calico with a stand-in for its operator, upgraded from "+before+" to "+after+" and taken back")
	rig := rigtest.New(t, bin, "oper", 2, "calico-typha@"+before)
	operate(t, rig, before)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := func(version string) string {
		return fmt.Sprint(map[string]int{"calico-kube-controllers " + version: 1, "calico-node " + version: 2,
			"calico-typha " + version: 1})
	}
	if got := versions(t, rig, system); got != all(before) {
		t.Fatalf("before: %s", got)
	}
	running := pods(t, rig)
	strategy := func() string {
		return kubectl(t, rig, "-n", system, "get", "daemonset/calico-node", "-o",
			"jsonpath={.spec.updateStrategy.type} {.spec.template.spec.containers[0].image}")
	}

	run := rigtest.Start(t, rig, "here", "apply", planOperator(t, rig, after), "--yes")
	run.Until("Update oper-node-2 to " + after)
	if got := strategy(); got != "RollingUpdate "+agents[after] {
		t.Errorf("in the middle the DaemonSet is: %s", got)
	}
	rigtest.Run(t, rig, "there", 0, nil, "rollback")
	run.Ends(5, "undone: Update oper-node-1 to "+after, "undone: Update Deployment tigera-operator",
		"undone: Stop the automatic rollout of DaemonSet calico-system/calico-node")
	nothingLost(t, rig, before+" to "+after+" and back")
	if got := versions(t, rig, system); got != all(before) {
		t.Errorf("taken back: %s", got)
	}
	if denied := kubectl(t, rig, "-n", system, "get", "events", "--field-selector", "reason=FailedDelete", "-o",
		"jsonpath={.items[*].message}"); !strings.Contains(denied, "theseus-hold-") {
		t.Errorf("the controller of DaemonSets was denied nothing, so nothing was held: %q", denied)
	}

	rigtest.Start(t, rig, "here", "apply", planOperator(t, rig, after), "--yes").Ends(0, "finished: done")
	nothingLost(t, rig, before+" to "+after)
	if got := versions(t, rig, system); got != all(after) {
		t.Fatalf("at the end: %s", got)
	}
	if now := pods(t, rig); now != running {
		t.Errorf("pods were touched:\n%s\nand were\n%s", now, running)
	}
	if left := kubectl(t, rig, "get",
		"clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
		"-o", "name"); strings.Contains(left, "theseus") {
		t.Errorf("of Theseus' own there is left: %s", left)
	}

	// The control: nothing holds the DaemonSet any more, and its controller goes back to the version before on all
	// nodes.
	apply(t, rig, operatorManifest(t, rig, before))
	kubectl(t, rig, "-n", system, "wait", "daemonset/calico-node",
		"--for=jsonpath={.spec.template.spec.containers[0].image}="+agents[before], "--timeout=120s")
	kubectl(t, rig, "-n", system, "rollout", "status", "daemonset/calico-node", "--timeout=180s")
}
