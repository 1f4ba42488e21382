package migration

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// ciliumTraces finds the residue of Cilium on a node.
const ciliumTraces = `ip -o link show | grep -E 'cilium|lxc'; iptables-save | grep -v theseus-system/ | grep -E 'CILIUM|theseus'; nft list tables | grep theseus;
	ls /etc/cni/net.d | grep -E 'cilium|theseus'; ls -d /run/cilium /var/lib/cilium /sys/fs/bpf/cilium 2>/dev/null; ls /opt/cni/bin | grep cilium;
	grep -E 'cgroup2 .*cilium|/run/cilium' /proc/1/mountinfo; ls /etc/sysctl.d | grep cilium; true`

// socketLB makes Cilium translate Services when pods connect. Without it, v1.20.2 lets single packets past policy, with
// any network or none before it: see docs/explanation/cilium-next-to-flannel.md.
var socketLB = []string{"--set", "socketLB.enabled=true"}

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

// planToCilium starts a cluster on flannel with traffic, whose nodes have Cilium's images, and plans the change to what
// its chart makes.
func planToCilium(t *testing.T, name string) (*scenario.Rig, string) {
	t.Helper()
	rig := newRig(t, name, 3)
	for _, file := range rigtest.CiliumImages(t, "../../..") {
		if _, err := rig.InLab(t.Context(), "image", "load", file); err != nil {
			t.Fatal(err)
		}
	}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	change, err := ciliumFlags(t.Context(), rig)
	if err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(rig.Dir, "plan.yaml")
	if _, err := rig.Run(t.Context(), slices.Concat([]string{"plan", "-o", plan}, change, rig.Flags)...); err != nil {
		t.Fatal(err)
	}
	return rig, plan
}

// mustHaveSettings demands that the settings of Cilium are those of its chart's manifest, except for some.
func mustHaveSettings(t *testing.T, rig *scenario.Rig, except ...string) {
	t.Helper()
	text, err := rig.Manifest(t.Context(), "cilium", socketLB...)
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

// ciliumFlags writes what Cilium's chart makes, as for a new cluster, and returns the flags of the change to it.
func ciliumFlags(ctx context.Context, rig *scenario.Rig) ([]string, error) {
	file, err := rig.ManifestFile(ctx, "cilium", socketLB...)
	if err != nil {
		return nil, err
	}
	lab, err := rig.Spec(ctx)
	if err != nil {
		return nil, err
	}
	return []string{"--to", "cilium", "--manifest", file, "--pod-cidr", lab.NewPodCIDR().String(),
		"--agent-image", scenario.AgentImage,
		"--probe-interval", "20ms"}, nil
}
