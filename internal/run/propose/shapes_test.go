package propose

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// shapes are what each cluster of cnitest.Shapes must be called, and what the answer to a change must lead to.
var shapes = map[string]struct{ name, leads string }{
	"antrea":            {"Antrea", "docs/strategies/mirror.md"},
	"aws":               {"Amazon VPC CNI", "docs/strategies/mirror.md"},
	"aws-calico":        {"Calico", "docs/strategies/mirror.md"},
	"aws-cilium":        {"Cilium chained to another network", "docs/strategies/mirror.md"},
	"azure":             {"Azure CNI", "theseus guard -- az aks update"},
	"azure-nodes":       {"Azure CNI", "theseus guard -- az aks update"},
	"calico":            {"Calico", ""},
	"calico-bpf":        {"Calico", "turn the replacement off first"},
	"calico-etcd":       {"Calico", "calicoctl datastore migrate"},
	"calico-ipip":       {"Calico", "theseus guard -- kubectl patch ippools"},
	"canal":             {"Canal", ""},
	"chained-bandwidth": {"flannel", "add the same entry to the list of plugins"},
	"chained-istio":     {"flannel", "components.cni.enabled=false"},
	"chained-multus":    {"flannel", "remove Multus and its file"},
	"chained-tuning":    {"flannel", "add the same entry to the list of plugins"},
	"flannel-host-gw":   {"flannel", "--accept cni/never-run=REASON"},
	"flannel-udp":       {"flannel", "kubectl -n kube-flannel rollout restart"},
	"flannel-wireguard": {"flannel", "VXLAN does not encrypt"},
	"k3s":               {"flannel inside k3s", "disable-network-policy: true"},
	"k3s-calico":        {"Calico", ""},
	"kindnet":           {"kindnet", "--accept cni/never-run=REASON"},
	"kindnet-kops":      {"kindnet of kOps", "docs/strategies/mirror.md"},
	"kindnet-nodes":     {"kindnet", "--accept cni/never-run=REASON"},
	"kube-router":       {"kube-router", ""},
	"kube-router-k0s":   {"kube-router", "docs/strategies/mirror.md"},
	"kube-router-nodes": {"kube-router", ""},
	"kube-router-proxy": {"kube-router", "let kube-proxy serve them first"},
	"openshift":         {"OVN-Kubernetes", "docs/strategies/mirror.md"},
	"ovn":               {"OVN-Kubernetes", "docs/strategies/mirror.md"},
	"rke2-canal":        {"Canal", "theseus guard start"},
	"weave":             {"Weave Net", ""},
}

// TestShapes: what is said of the networks that people run, as they are, and when another is to come: to flannel where
// there is Calico, else to Calico. Each is one network, called by its name, and what is said leads further.
func TestShapes(t *testing.T) {
	page, err := os.ReadFile("../../../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	names := cnitest.Shapes(t)
	for _, name := range names {
		var said strings.Builder
		snapshot := cnitest.Shape(t, name)
		called := callAll(snapshot)
		change := v1alpha1.ChangeSpec{To: "calico", PodCIDR: "10.96.0.0/16", Strategy: "recreate"}
		if strings.HasPrefix(called[0], "Calico") {
			change.To, change.PodCIDR = "flannel", "10.244.0.0/16"
		}
		change.AgentImage = "registry.example.com/agent:1"
		fmt.Fprintf(&said, "# %s\nnetwork: %s\n", name, strings.Join(called, ", "))
		in := Input{Snapshot: snapshot, Options: Options(v1alpha1.ChangeSpec{}, noon)}
		tell(t, &said, "check", in)
		in.Change, in.Manifest = change, cnitest.Fixture(t, change.To+"-manifest.yaml")
		tell(t, &said, "plan --to "+change.To, in)
		fmt.Fprintln(&said)
		want, known := shapes[name]
		switch {
		case !known:
			t.Errorf("%s: what must be said of it is not in this test", name)
		case !slices.Equal(called, []string{want.name}):
			t.Errorf("%s is called %q, not %q", name, called, want.name)
		case !strings.Contains(said.String(), want.leads):
			t.Errorf("%s: %q is nowhere in\n%s", name, want.leads, said.String())
		case !strings.Contains(string(page), "\n| "+want.name):
			t.Errorf("%s has no row in docs/networks.md", want.name)
		case strings.Contains(said.String(), "is incomplete"):
			t.Errorf("%s is called incomplete:\n%s", name, said.String())
		}
		all.WriteString(said.String())
	}
	if len(names) != len(shapes) {
		t.Errorf("%d shapes, and %d in this test", len(names), len(shapes))
	}
	cnitest.Same(t, "testdata/shapes.txt", all.String(), *update)
}

// callAll names the networks that were detected, or else recognised.
func callAll(snapshot *cluster.Snapshot) []string {
	var called []string
	for _, found := range drivers.All().Detect(snapshot) {
		called = append(called, found.Title())
	}
	if len(called) > 0 {
		return called
	}
	for _, stranger := range cni.Strangers(snapshot, nil) {
		if stranger.Name != "" && !stranger.Chained {
			called = append(called, stranger.Name)
		}
	}
	return append(called, "")[:max(len(called), 1)]
}

// tell is what of an answer is about the network.
func tell(t *testing.T, said *strings.Builder, command string, in Input) {
	t.Helper()
	checked, err := Check(in)
	var refused *cni.Refusal
	switch {
	case errors.As(err, &refused):
		fmt.Fprintf(said, "%s: refused: %s\n  hint: %s\n", command, refused.Message, refused.Hint)
		return
	case err != nil:
		t.Fatal(err)
	}
	for _, found := range checked.Result.Findings {
		if strings.HasPrefix(found.ID, "cni/") {
			fmt.Fprintf(said, "%s: %s %s: %s\n  fix: %s\n", command, found.Severity, found.ID, found.Message, found.Fix)
		}
	}
	if checked.Refused != nil {
		fmt.Fprintf(said, "%s: %v\n  hint: %s\n", command, checked.Refused, HintOf(checked.Refused))
	}
}

// TestFirewallIsNoNetwork: a kube-router that only enforces policy is not taken for the network, which may be one of
// files on the nodes alone.
func TestFirewallIsNoNetwork(t *testing.T) {
	snapshot := cnitest.Shape(t, "kube-router")
	snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--run-router=false",
		"--run-service-proxy=false"}
	var said strings.Builder
	tell(t, &said, "plan", Input{Snapshot: snapshot, Options: Options(v1alpha1.ChangeSpec{}, noon),
		Change: v1alpha1.ChangeSpec{To: "calico", PodCIDR: "10.96.0.0/16",
			AgentImage: "registry.example.com/agent:1"},
		Manifest: cnitest.Fixture(t, "calico-manifest.yaml")})
	for _, want := range []string{"Theseus cannot change the network of this cluster, and found only kube-router " +
		"(DaemonSet kube-system/kube-router), which only enforces NetworkPolicy", "theseus snapshot --nodes"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in\n%s", want, said.String())
		}
	}
}
