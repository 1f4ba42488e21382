package migration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestFolders: nodes whose container runtime reads CNI files from the folders of k3s. A manifest that writes to the
// default ones is refused. An adoption is taken back, and then carried out, in the runtime's folders alone.
func TestFolders(t *testing.T) {
	rigtest.Full(t, "running pods moved from flannel to Calico, back and there again, on nodes with other CNI folders")
	const conf, bins = "/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/rancher/k3s/data/cni"
	t.Setenv("THESEUS_LAB_CNI_CONF_DIR", conf)
	t.Setenv("THESEUS_LAB_CNI_BIN_DIR", bins)
	rig := adopted(t, "fold", 2, "flannel", "iptables")
	mustRefuseDefaults(t, rig, conf, bins)

	mustComeBack(t, rig)
	traces := func(network string) string {
		return "ls " + conf + " " + bins + " | grep -E '" + network + "|theseus'; " +
			"ls /etc/cni/net.d /opt/cni/bin 2>/dev/null | grep -vE '^/.*:$' | grep .; true"
	}
	rigtest.NothingOn(t, rig, "Calico, or a file in a default folder,", traces("calico"))
	rigtest.Finds(t, rig, "flannel")

	before := podsOf(t, rig)
	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the adoption")
	mustBeSamePods(t, before, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	rigtest.NothingOn(t, rig, "flannel, or a file in a default folder,", traces("flannel"))
	mustServeCalico(t, rig, "state")
	for _, node := range rig.NodeNames() {
		text, err := rig.OnNode(t.Context(), node, "cat", conf+"/10-calico.conflist")
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, text, `"kubeconfig": "`+conf+`/calico-kubeconfig"`)
	}
	rigtest.Finds(t, rig, "calico")
}

// mustRefuseDefaults demands that a manifest which writes to the default folders is refused, and that the snapshot has
// those of the runtime.
func mustRefuseDefaults(t *testing.T, rig *scenario.Rig, conf, bins string) {
	t.Helper()
	change, err := rig.ChangeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snapshot, usual := filepath.Join(rig.Dir, "asked.json"), filepath.Join(rig.Dir, "usual.yaml")
	if code, out := theseus(t, rig, "state", "snapshot", "--nodes", "--agent-image", scenario.AgentImage, "-o",
		snapshot); code != 0 {
		t.Fatalf("snapshot ended with %d:\n%s", code, out)
	}
	text, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(text), `"the answer of containerd at /run/containerd/containerd.sock (the kubelet's)"`)
	manifest, err := os.ReadFile(filepath.Join(rig.Dir, "calico.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.NewReplacer(conf, "/etc/cni/net.d", bins, "/opt/cni/bin").Replace(string(manifest))
	if err := os.WriteFile(usual, []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, flag := range change {
		if flag == "--manifest" {
			change[i+1] = usual
		}
	}
	code, out := theseus(t, rig, "state", append([]string{"check", "--from", snapshot, "--only", "cni/folders"},
		change...)...)
	if code == 0 {
		t.Error("a manifest that writes to the default folders is not refused")
	}
	mustContain(t, out, "the manifest writes its CNI configuration to /etc/cni/net.d, but the container runtime reads "+
		conf+" on 2 nodes", "the manifest writes its plugins to /opt/cni/bin, but the container runtime searches "+bins)
}
