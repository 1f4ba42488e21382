// Package upgrade tests an upgrade of Calico, with Typha, on a real cluster under traffic: back from the middle, to the
// end, and from there to the version before.
package upgrade

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

// releases are those that are gone through, one after another. The lab's nodes hold the images of all of them.
var releases = []string{"v3.28.5", "v3.30.1", "v3.31.0"}

// kubectl runs it and returns what it printed.
func kubectl(t *testing.T, rig *scenario.Rig, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// versions are the images of Calico's parts, each with how many pods run it.
func versions(t *testing.T, rig *scenario.Rig, namespace string) string {
	t.Helper()
	images := kubectl(t, rig, "-n", namespace, "get", "pods", "-l",
		"k8s-app in (calico-node, calico-typha, calico-kube-controllers)",
		"--field-selector", "status.phase=Running", "-o",
		`jsonpath={range .items[*]}{.metadata.labels.k8s-app}{":"}{.spec.containers[0].image}{"\n"}{end}`)
	count := map[string]int{}
	for _, line := range strings.Fields(images) {
		part, _, _ := strings.Cut(line, ":")
		count[part+" "+line[strings.LastIndex(line, ":")+1:]]++
	}
	return fmt.Sprint(count)
}

// all is what versions says when every part is of one version.
func all(version string) string {
	return fmt.Sprint(map[string]int{"calico-kube-controllers " + version: 1, "calico-node " + version: 2,
		"calico-typha " + version: 1})
}

// state is what an upgrade changes, and its way back is to restore: what pods are made from, and what they may do.
func state(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	return kubectl(t, rig, "-n", "kube-system", "get", "daemonset/calico-node", "deployment/calico-typha",
		"deployment/calico-kube-controllers", "configmap/calico-config", "clusterrole/calico-node",
		"clusterrole/calico-kube-controllers", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.data} {.rules} {.spec.updateStrategy} {.spec.template}{"\n"}{end}`)
}

// definitions are of the release that is returned: the last one whose field of a FelixConfiguration the API server
// knows.
func definitions(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	known := kubectl(t, rig, "get", "crd", "felixconfigurations.crd.projectcalico.org",
		"-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties}")
	of := ""
	for i, field := range []string{"wireguardEnabled", "nftablesMode", "programClusterRoutes"} {
		if strings.Contains(known, `"`+field+`"`) {
			of = releases[i]
		}
	}
	return of
}

// pods are those of the traffic, as they run.
func pods(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	return kubectl(t, rig, "-n", "shop", "get", "pods", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.status.podIP} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
}

// nothingLost demands that the clients lost nothing, long connections among them, and that nothing that policy denies
// came through.
func nothingLost(t *testing.T, rig *scenario.Rig, when string) {
	t.Helper()
	cost := rigtest.NothingLost(t, rig, time.Minute, when)
	stream := cost.Kinds["tcp-stream"]
	if stream.Sent == 0 {
		t.Fatalf("%s: no long connection was measured", when)
	}
	t.Logf("%s: nothing lost or leaked of %d requests, %d of them on long connections", when, cost.Sent(), stream.Sent)
}

// plan writes a plan for the upgrade to a release, and returns its file.
func plan(t *testing.T, rig *scenario.Rig, to string) string {
	t.Helper()
	cidr := kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o", "jsonpath={.items[0].spec.cidr}")
	file := filepath.Join(rig.Dir, "plan.yaml")
	manifest, err := rig.ManifestFile(t.Context(), "calico-typha", "--calico", to, "--pod-cidr", cidr)
	if err == nil {
		_, err = rig.Run(t.Context(), "plan", "--to", "calico", "--cni-version", to, "--manifest", manifest,
			"--agent-image", scenario.AgentImage, "--waves", "1,0", "--bake", "3s", "--probe-interval", "50ms",
			"--max-lost", "3", "-o", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUpgrade(t *testing.T) {
	rigtest.Full(t, "Calico upgraded over "+strings.Join(releases, ", ")+
		", of which two have to be built, and taken back")
	rig := rigtest.New(t, bin, "up", 2, "calico-typha@"+strings.Join(releases[:len(releases)-1], ","))
	rig.WorldRate = 25
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := versions(t, rig, "kube-system"); got != all(releases[0]) {
		t.Fatalf("before: %s", got)
	}
	running := pods(t, rig)
	for i, after := range releases[1:] {
		if got := definitions(t, rig); got != releases[i] {
			t.Fatalf("the definitions are of %q before the upgrade to %s", got, after)
		}
		// From the middle of the nodes, and from behind the last of them.
		takenBack(t, rig, releases[i], after,
			[]string{"Update up-node-2 to ", "Update Deployment kube-system/calico-typha to "}[i])
		rigtest.Start(t, rig, "here", "apply", plan(t, rig, after), "--yes").Ends(0, "finished: done")
		nothingLost(t, rig, releases[i]+" to "+after)
		if got := versions(t, rig, "kube-system"); got != all(after) {
			t.Fatalf("at the end: %s", got)
		}
	}
	if now := pods(t, rig); now != running {
		t.Errorf("pods were touched:\n%s\nand were\n%s", now, running)
	}
	if left := kubectl(t, rig, "get", "clusterroles,clusterrolebindings", "-o",
		"name"); strings.Contains(left, "theseus") {
		t.Errorf("rights of Theseus' own are left: %s", left)
	}
}

// takenBack begins a change of the version, and goes back from the step of a title. The definitions are the newer ones
// from then on. It returns what was printed.
func takenBack(t *testing.T, rig *scenario.Rig, before, after, from string) string {
	t.Helper()
	was, defined := state(t, rig), max(definitions(t, rig), after)
	run := rigtest.Start(t, rig, "here", "apply", plan(t, rig, after), "--yes")
	run.Until(from + after)
	if got := definitions(t, rig); got != defined {
		t.Errorf("while agents of %s and %s run the definitions are of %q, not %s", before, after, got, defined)
	}
	rigtest.Run(t, rig, "there", 0, nil, "rollback")
	nodes := rig.NodeNames()
	run.Ends(5, "undone: Update "+nodes[1]+" to "+after, "undone: Update "+nodes[0]+" to "+after)
	if got := definitions(t, rig); got != defined {
		t.Errorf("taken back, the definitions are of %q, not %s", got, defined)
	}
	nothingLost(t, rig, before+" to "+after+" and back, from: "+from)
	asBefore(t, rig, before, was)
	return run.Said()
}

// asBefore demands that all of Calico is of a version, and as state had it.
func asBefore(t *testing.T, rig *scenario.Rig, version, was string) {
	t.Helper()
	if got := versions(t, rig, "kube-system"); got != all(version) {
		t.Errorf("taken back: %s", got)
	}
	if now := state(t, rig); now != was {
		t.Errorf("it is not as it was:\n%s\nand was\n%s", now, was)
	}
}
