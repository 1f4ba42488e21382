// Package rehearse runs theseus rehearse: a copy of one lab's cluster in another lab.
package rehearse

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them.
const bin = "../../../bin"

//go:embed odd.yaml
var odd []byte

// kubectl runs kubectl and demands that it succeeds.
func kubectl(t *testing.T, rig *scenario.Rig, stdin []byte, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), bytes.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// context is the name of the one context of a lab's kubeconfig.
func context(rig *scenario.Rig) string { return "theseus-lab-" + rig.Name }

// marks are the labels and taints of a cluster's nodes, by node; those of Theseus itself, which the change leaves, are
// not among them.
func marks(t *testing.T, rig *scenario.Rig) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Name                string
				Labels, Annotations map[string]string
			}
			Spec struct{ Taints []map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(kubectl(t, rig, nil, "get", "nodes", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, node := range list.Items {
		maps.DeleteFunc(node.Metadata.Labels, func(key, _ string) bool {
			return strings.HasPrefix(key, "theseus.dev/")
		})
		if node.Metadata.Annotations["rehearsal.theseus.dev/before"] != "" {
			t.Errorf("%s has the annotation of a rehearsal", node.Metadata.Name)
		}
		all[node.Metadata.Name] = fmt.Sprint(node.Metadata.Labels, node.Spec.Taints)
	}
	return all
}

// original makes a cluster with odd workloads and two classes of nodes, which is gone at the end of the test t, and
// writes its snapshot.
func original(t *testing.T, file string) {
	t.Helper()
	rig := rigtest.New(t, bin, "ro", 3, "flannel")
	special := rig.NodeNames()[2]
	kubectl(t, rig, nil, "label", "node", special, "disk=ssd")
	kubectl(t, rig, nil, "taint", "node", special, "dedicated=db:NoSchedule")
	kubectl(t, rig, odd, "apply", "-f", "-")
	for _, workload := range []string{"deployment/web", "daemonset/log", "statefulset/db", "deployment/hook"} {
		kubectl(t, rig, nil, "-n", "odd", "rollout", "status", workload, "--timeout=120s")
	}
	rigtest.Run(t, rig, "here", 0, nil, "snapshot", "-o", file)
	rigtest.Run(t, rig, "here", 1, []string{"error: the scratch cluster is the original itself"},
		"rehearse", "--from", file, "--to", "calico", "--agent-image", scenario.AgentImage,
		"--context", context(rig), "--dry-run")
	rigtest.Run(t, rig, "here", 2, []string{"error: --context is missing"}, "rehearse", "--from", file, "--to",
		"calico", "--agent-image", scenario.AgentImage, "--dry-run")
}

// TestRehearse: a cluster that is gone is copied from its snapshot to another lab; the change from flannel to Calico
// runs there, and passes; the copy is removed. A copy that is kept is there, with no secret of the original, until it
// is removed, and nodes are as before.
func TestRehearse(t *testing.T) {
	rigtest.Full(t, "a change rehearsed on a copy, from the snapshot of a cluster that is gone")
	snapshot := filepath.Join(t.TempDir(), "snapshot.json")
	if !t.Run("original", func(t *testing.T) { original(t, snapshot) }) {
		return
	}
	rig := rigtest.New(t, bin, "rs", 2, "flannel")
	before := marks(t, rig)
	manifest, err := rig.ManifestFile(t.Context(), "calico")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"rehearse", "--from", snapshot, "--to", "calico", "--manifest", manifest, "--agent-image",
		scenario.AgentImage, "--context", context(rig), "--probe-interval", "60ms", "--max-lost", "50",
		"--max-gap", "10s", "--bake", "2s"}
	rigtest.Run(t, rig, "here", 0, []string{"class-1  worker", "dedicated=db:NoSchedule", "odd/web"},
		append(args, "--dry-run")...)
	rigtest.Run(t, rig, "here", 2, []string{"add --yes"}, args...)

	file := filepath.Join(rig.Dir, "rehearsal.json")
	rigtest.Run(t, rig, "here", 0, []string{"rolled back after step", "REHEARSAL PASSED: flannel", "policy verdicts",
		"quota odd/odd: pods 7 of 8, as 9 of 10 in the original\n",
		"quota odd/odd: requests.cpu 70m of 80m, as 90m of 100m in the original\n",
		"the copy stays"}, append(args, "--yes", "--keep", "-o", file)...)
	if secret := kubectl(t, rig, nil, "-n", "odd", "get", "secret", "token", "-o",
		"jsonpath={.data.value}"); secret == "" || strings.Contains(secret, "dGhpcy1tdXN0") {
		t.Errorf("the copy's secret: %q", secret)
	}
	if on := kubectl(t, rig, nil, "-n", "odd", "get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}"); on == "" {
		t.Error("db-0 is on no node")
	}
	admission(t, rig)
	result(t, file)
	rigtest.Run(t, rig, "here", 1, []string{"error: the scratch cluster has calico"}, append(args, "--dry-run")...)
	remove := []string{"rehearse", "remove", "--context", context(rig)}
	rigtest.Run(t, rig, "here", 2, []string{"Namespace odd, with everything in it", "hint: add --yes"}, remove...)
	rigtest.Run(t, rig, "here", 0, []string{"removed the copy: 1 namespace"}, append(remove, "--yes")...)
	rigtest.Run(t, rig, "here", 0, []string{"there is no copy"}, remove...)
	if after := marks(t, rig); !maps.Equal(before, after) {
		t.Errorf("nodes were %v, and are %v", before, after)
	}
	if left := kubectl(t, rig, nil, "get", "namespaces", "-l", "rehearsal.theseus.dev/of", "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// admission demands that the API server asks the stand-in for the webhook: it is allowed what it asks about, and
// nothing is allowed when the stand-in is gone.
func admission(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	kubectl(t, rig, nil, "-n", "odd", "create", "configmap", "asked")
	kubectl(t, rig, nil, "-n", "odd", "scale", "deployment", "hook", "--replicas=0")
	rigtest.Until(t, "the webhook that must answer is missed", func() bool {
		out, err := rig.Kubectl(t.Context(), nil, "-n", "odd", "create", "configmap", "refused", "--dry-run=server")
		return err != nil && strings.Contains(out+err.Error(), `failed calling webhook "odd.example.com"`)
	})
}

// result demands that the file of a rehearsal says what its text says, with a report of measured paths.
func result(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Passed   bool
		Learnt   string
		Coverage []struct {
			Area       string
			Alike, All int
			Not        []string
		}
		Report struct{ Totals struct{ Sent int } }
	}
	if err := json.Unmarshal(data, &said); err != nil {
		t.Fatal(err)
	}
	if !said.Passed || said.Report.Totals.Sent == 0 || len(said.Coverage) != 9 {
		t.Errorf("%+v", said)
	}
	for _, area := range said.Coverage {
		if area.All == 0 || area.Area == "policy verdicts" && area.Alike != area.All {
			t.Errorf("%+v", area)
		}
	}
}

// TestFaults: theseus-lab rehearse kills an agent, holds the API server for 30 s and takes an agent's image away, each
// in a run of its own. Each run goes on, and is rolled back when it is asked to; the change passes at the end.
func TestFaults(t *testing.T) {
	rigtest.Full(t, "runs of a change on a copy, with a killed agent, no image, and an API server that is away")
	snapshot := filepath.Join(t.TempDir(), "snapshot.json")
	if !t.Run("original", func(t *testing.T) { original(t, snapshot) }) {
		return
	}
	rig := rigtest.Unstarted(t, bin, "rf", 2)
	command := exec.CommandContext(t.Context(), rig.Lab, "rehearse", "--name", rig.Name, "--from", snapshot, "--dir",
		rig.Dir, "--", "--to", "calico", "--probe-interval", "60ms", "--max-lost", "50", "--max-gap", "10s", "--bake",
		"2s", "--faults", "agent,api,image")
	var said bytes.Buffer
	to := io.MultiWriter(rig.Out, &said)
	command.Stdout, command.Stderr = to, to
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	out := said.String()
	data, err := os.ReadFile(filepath.Join(rig.Dir, "rehearsal.json"))
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Passed bool
		Faults []struct {
			Fault, Node, Expected, Happened string
			Step                            int
			Passed                          bool
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if !result.Passed || len(result.Faults) != 3 {
		t.Errorf("%+v", result)
	}
	for i, fault := range result.Faults {
		if !fault.Passed || fault.Fault != []string{"agent", "api", "image"}[i] || fault.Step == 0 ||
			fault.Node == "" || fault.Expected == "" || !strings.Contains(fault.Happened, "went on") {
			t.Errorf("%+v", fault)
		}
	}
	for _, says := range []string{"fault agent with step ", "fault api with step ", "REHEARSAL PASSED"} {
		if !strings.Contains(out, says) {
			t.Errorf("%q is missing", says)
		}
	}
}
