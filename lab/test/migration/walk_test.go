package migration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestWalk adopts running pods to the end while a node turns against the other one (hostile), and while parts of the
// cluster are killed one after the other: a kubelet, the API server, a node's probers, the agent that has a task at
// hand, containerd, and the command line. A user tried all of that on a live cluster; two of the kills took the whole
// adoption back. The clients, which also open 25 new connections a second to the outside, lose nothing, and no pod
// restarts. A live page shows all of it. Another machine takes the end of the run over. Whoever runs it has the rights
// that `theseus rights operate` gives for that plan: by the audit log of the API server, each of these is used or
// has a named reason, and the run lacks none that it needs.
func TestWalk(t *testing.T) {
	rig := newRig(t, "walk", 2)
	rig.Strategy, rig.WorldRate = "adopt", 25
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := podsOf(t, rig)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rig.User = rigtest.User(t, rig, "operator", rigtest.Rights(t, rig, "operator", "operate", "--plan", plan))
	rights := rolesOf(t, rig)
	apply := rigtest.Start(t, rig, "here", "apply", plan, "--yes")
	apply.Until("Create the CRDs of Calico")
	page := openPage(t, rig)
	for _, kill := range []struct {
		at string // a line that the command prints
		do func(*testing.T, *scenario.Rig)
	}{
		{"Create the CRDs of Calico", attack("walk-node-2", "walk-node-1", apply)},
		{"Start Calico next to flannel on walk-node-1", killComponents("walk-node-1", "kubelet")},
		{"Adopt the pods of walk-node-1", rigtest.KillAPIServer},
		{"Start Calico next to flannel on walk-node-2", killProbers("walk-node-1")},
		{"Adopt the pods of walk-node-2", deleteAgent("walk-node-2")},
		{"Use Calico for new pods on walk-node-2", killComponents("walk-node-2", "containerd")},
	} {
		apply.Until(kill.at)
		kill.do(t, rig)
	}
	lookAtNodes(t, rig, 1, "has not ended: inspecting the nodes would replace its agents")
	apply.Until("Remove flannel")
	apply.Kill()
	rigtest.Start(t, rig, "there", "resume").Ends(0)
	page.close(t, 2)
	mustLoseNothing(t, rig, "after an adoption through all kills")
	mustBeSamePods(t, before, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	mustServeCalico(t, rig, "there")
	rigtest.Run(t, rig, "here", 0, []string{"The prober of the host of walk-node-1 restarted at",
		"The probe pod of walk-node-1 on the old network restarted at", "Theseus' agent on walk-node-2 restarted at"},
		"report", "-o", "json")
	lookAtNodes(t, rig, 0) // the journal stays
	rigtest.Run(t, rig, "there", 0, []string{", done"}, "status")
	mustUseItsRights(t, rig, rights)
}

// lookAtNodes installs agents outside of the migration, which is refused while it is under way.
func lookAtNodes(t *testing.T, rig *scenario.Rig, code int, texts ...string) {
	t.Helper()
	rigtest.Run(t, rig, "elsewhere", code, texts, "snapshot", "--nodes", "--agent-image", scenario.AgentImage,
		"-o", filepath.Join(t.TempDir(), "snapshot.json"))
}

// killComponents returns a function that kills programs of a node, which the node starts again.
func killComponents(node string, components ...string) func(*testing.T, *scenario.Rig) {
	return func(t *testing.T, rig *scenario.Rig) {
		t.Helper()
		for _, component := range components {
			if _, err := rig.InLab(t.Context(), "node", "kill", "--component", component, node); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(rig.Out, "-- %s of %s is killed\n", component, node)
		}
	}
}

// killProbers returns a function that kills all that sends and answers probes on a node, but the second responders.
// Kubelet starts it again: it and the API server, which were killed a moment ago, have to be back for that.
func killProbers(node string) func(*testing.T, *scenario.Rig) {
	return func(t *testing.T, rig *scenario.Rig) {
		t.Helper()
		rigtest.Until(t, "the API server is ready", func() bool {
			_, err := rig.Kubectl(t.Context(), nil, "get", "--raw", "/readyz")
			return err == nil
		})
		rigtest.Until(t, "the kubelet of "+node+" is healthy", func() bool {
			_, err := rig.OnNode(t.Context(), node, "curl", "-fsS", "-m", "1", "http://127.0.0.1:10248/healthz")
			return err == nil
		})
		out, err := rig.OnNode(t.Context(), node, "pkill", "-KILL", "-c", "-f",
			"^[^ ]*theseus-agent probe --network (old|host)")
		if err != nil || strings.TrimSpace(out) != "2" {
			t.Fatalf("%v: %s", err, out)
		}
		fmt.Fprintf(rig.Out, "-- the probers of %s are killed\n", node)
	}
}

// deleteAgent returns a function that deletes the agent's pod of a node at once, as an eviction or a lack of memory
// would.
func deleteAgent(node string) func(*testing.T, *scenario.Rig) {
	return func(t *testing.T, rig *scenario.Rig) {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), nil, "-n", "theseus-system", "delete", "pod",
			"--grace-period=0", "--force", "-l", "app.kubernetes.io/name=theseus-agent",
			"--field-selector", "spec.nodeName="+node)
		if err != nil || !strings.Contains(out, "deleted") {
			t.Fatalf("%v: %s", err, out)
		}
		fmt.Fprintf(rig.Out, "-- the agent's pod of %s is deleted\n", node)
	}
}
