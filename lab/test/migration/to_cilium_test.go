package migration

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// ciliumTraces finds the residue of Cilium on a node.
const ciliumTraces = `ip -o link show | grep -E 'cilium|lxc'; iptables-save | grep -v theseus-system/ | grep -E 'CILIUM|theseus'; nft list tables | grep theseus;
	ls /etc/cni/net.d | grep -E 'cilium|theseus'; ls -d /run/cilium /var/lib/cilium /sys/fs/bpf/cilium 2>/dev/null; ls /opt/cni/bin | grep cilium;
	grep -E 'cgroup2 .*cilium|/run/cilium' /proc/1/mountinfo; ls /etc/sysctl.d | grep cilium; true`

// TestToCilium leaves flannel for Cilium under traffic, with policy enforced throughout. In the end nothing of flannel
// is left, and Cilium has the settings of its manifest.
func TestToCilium(t *testing.T) {
	rigtest.Full(t, "flannel to Cilium: six minutes, and Cilium's build")
	rig, plan := planToCilium(t, "toci")
	if _, err := rig.Run(t.Context(), "apply", plan, "--yes"); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the change")
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	rigtest.NothingOn(t, rig, "the joint phase",
		`nft list tables | grep theseus; ls /etc/cni/net.d | grep -v '^05-cilium.conflist$'; true`)
	mustHaveNoneOf(t, rig, "flannel", "kube-router", "theseus-introduce")
	mustHaveSettings(t, rig, "tunnel-port", "cluster-pool-ipv4-cidr")
	rigtest.Finds(t, rig, "cilium")
}

// TestToCiliumBack kills the command line in the middle of that change, and takes it back from another machine. Nothing
// of Cilium is left: no CRD, nothing on a node, and no BPF program in the kernel.
func TestToCiliumBack(t *testing.T) {
	rigtest.Full(t, "flannel to Cilium, taken back: seven minutes, and Cilium's build")
	loaded := rigtest.InKernel(t)
	rig, plan := planToCilium(t, "bkci")
	killAt(t, rig, "here", "Move the pods of bkci-node-2", nil, "apply", plan, "--yes")
	if len(rigtest.NewInKernel(t, loaded)) == 0 {
		t.Error("a running Cilium shows no new program or map: the comparison is blind")
	}
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Cilium", ciliumTraces)
	mustHaveNoneOf(t, rig, "cilium", "theseus-introduce")
	rigtest.Finds(t, rig, "flannel")
	rigtest.Until(t, "no program, map or link of Cilium is in the kernel", func() bool {
		return len(rigtest.NewInKernel(t, loaded)) == 0
	})
}

// TestCalicoToCilium leaves Calico for Cilium under traffic, with policy enforced throughout. No plan is made while
// Calico may take Cilium's link for the node's own. The change is killed in the middle and taken back from another
// machine, which leaves nothing of Cilium, and carried out again, which leaves nothing of Calico.
func TestCalicoToCilium(t *testing.T) {
	rigtest.Full(t, "Calico to Cilium, back and there again: fifteen minutes, and Cilium's build")
	loaded := rigtest.InKernel(t)
	rig := newRigOn(t, "caci", 3, "calico")
	flags := toCilium(t, rig)
	code, out := theseus(t, rig, "here", append([]string{"plan", "-o", rig.Dir + "/no.yaml"}, flags...)...)
	if code != 3 || !strings.Contains(out, "cni/autodetection") {
		t.Fatalf("a Calico that may choose cilium_host: exit code %d\n%s", code, out)
	}
	if err := rig.ByInternalIP(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, rig)
	plan := newPlan(t, rig, flags)
	killAt(t, rig, "here", "Move the pods of caci-node-2", nil, "apply", plan, "--yes")
	if len(rigtest.NewInKernel(t, loaded)) == 0 {
		t.Error("a running Cilium shows no new program or map: the comparison is blind")
	}
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "Cilium", ciliumTraces)
	mustHaveNoneOf(t, rig, "cilium", "theseus-introduce")
	rigtest.Finds(t, rig, "calico")
	rigtest.Until(t, "no program, map or link of Cilium is in the kernel", func() bool {
		return len(rigtest.NewInKernel(t, loaded)) == 0
	})

	plan = newPlan(t, rig, flags)
	if _, err := rig.Run(t.Context(), "apply", plan, "--yes"); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the change")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.NothingOn(t, rig, "the joint phase",
		`nft list tables | grep theseus; ls /etc/cni/net.d | grep -v '^05-cilium.conflist$'; true`)
	mustHaveNoneOf(t, rig, "calico", "theseus-introduce")
	mustHaveSettings(t, rig, "cluster-pool-ipv4-cidr")
	rigtest.Finds(t, rig, "cilium")
}

// planToCilium starts a cluster on flannel with traffic, whose nodes have Cilium's images, and plans the change to what
// its chart makes.
func planToCilium(t *testing.T, name string) (*scenario.Rig, string) {
	t.Helper()
	rig := newRig(t, name, 3)
	ready(t, rig)
	return rig, newPlan(t, rig, toCilium(t, rig))
}

// ready gives a cluster Cilium's images, and traffic.
func ready(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	if err := rig.Load(t.Context(), rigtest.ImagesOf(t, "../../..", "cilium")); err != nil {
		t.Fatal(err)
	}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// toCilium are the flags of a cluster's change to Cilium.
func toCilium(t *testing.T, rig *scenario.Rig) []string {
	t.Helper()
	rig.To = "cilium"
	flags, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

// newPlan plans a cluster's change to Cilium.
func newPlan(t *testing.T, rig *scenario.Rig, flags []string) string {
	t.Helper()
	plan := filepath.Join(rig.Dir, "plan.yaml")
	if _, err := rig.Run(t.Context(), append([]string{"plan", "-o", plan}, flags...)...); err != nil {
		t.Fatal(err)
	}
	return plan
}

// mustHaveSettings demands that the settings of Cilium are those of its chart's manifest, except for some.
func mustHaveSettings(t *testing.T, rig *scenario.Rig, except ...string) {
	t.Helper()
	text, err := rig.Manifest(t.Context(), "cilium", scenario.SocketLB...)
	if err != nil {
		t.Fatal(err)
	}
	type config struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
	}
	var want, got config
	objects := json.NewDecoder(
		strings.NewReader(kubectl(t, rig, text, "create", "--dry-run=client", "-f", "-", "-o", "json")))
	for objects.More() {
		var one config
		if err := objects.Decode(&one); err != nil {
			t.Fatal(err)
		}
		if one.Kind == "ConfigMap" && one.Metadata.Name == "cilium-config" {
			want = one
		}
	}
	if len(want.Data) == 0 {
		t.Fatal("the manifest has no settings")
	}
	live := kubectl(t, rig, "", "-n", "kube-system", "get", "configmap", "cilium-config", "-o", "json")
	if err := json.Unmarshal([]byte(live), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range except {
		delete(got.Data, key)
		delete(want.Data, key)
	}
	if !maps.Equal(got.Data, want.Data) {
		t.Errorf("the settings are\n%q\nand those of the manifest\n%q", got.Data, want.Data)
	}
}

// mustHaveNoneOf demands that no object of the cluster that a network leaves has one of some words in its name.
func mustHaveNoneOf(t *testing.T, rig *scenario.Rig, words ...string) {
	t.Helper()
	all := kubectl(t, rig, "", "get", "crd,clusterrole,clusterrolebinding,namespaces", "-o", "name") +
		kubectl(t, rig, "", "get", "daemonsets,deployments,configmaps,serviceaccounts,roles,rolebindings",
			"-A", "-o", "name")
	for _, word := range words {
		for line := range strings.Lines(all) {
			// whose names have the plan's
			if strings.Contains(line, word) && !strings.Contains(line, "theseus-evidence-") {
				t.Errorf("of %s there is: %s", word, line)
			}
		}
	}
}
