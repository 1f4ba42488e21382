package migration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// withoutFlannel is what a person does on a node to be rid of flannel and kube-router.
const withoutFlannel = `rm -f /etc/cni/net.d/10-flannel.conflist; ip link del flannel.1; ip link del cni0;
	iptables-save | grep -v -E 'KUBE-ROUTER|KUBE-POD-FW|KUBE-NWPLCY|FLANNEL|flanneld' | iptables-restore; for set in $(ipset list -n); do ipset destroy $set; done; true`

// TestToFlannel leaves Calico for flannel under traffic. Pods on Calico have addresses that no node's own range holds, so the
// planner, asked to adopt them, says which and why and has them created again. Nothing of Calico is left, and nodes take pods.
func TestToFlannel(t *testing.T) {
	rigtest.Full(t, "Calico to flannel: five minutes")
	rig := newRig(t, "tofl", 2)
	onCalico(t, rig)
	if err := rig.Deploy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// flannel enforces no policy, and preflight stops a change that would end one.
	kubectl(t, rig, "", "-n", workload.Namespace, "delete", "deployment/intruder", "--cascade=foreground", "--wait")
	kubectl(t, rig, "", "-n", workload.Namespace, "delete", "networkpolicy/vault")
	if _, err := rig.Steady(t.Context()); err != nil {
		t.Fatal(err)
	}
	manifest, err := rig.Manifest(t.Context(), "flannel", "--pod-cidr", podCIDR(t, rig))
	if err != nil {
		t.Fatal(err)
	}
	manifest, _, _ = strings.Cut(manifest, "# kube-router as the enforcer") // what enforces policy comes after it
	file := filepath.Join(rig.Dir, "flannel.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(rig.Dir, "plan.yaml")
	out, err := rig.Run(t.Context(), append([]string{"plan", "-o", plan, "--to", "flannel", "--manifest", file, "--agent-image", scenario.AgentImage,
		"--strategy", "adopt", "--pod-cidr", podCIDR(t, rig), "--probe-interval", "20ms"}, rig.Flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, out, "pods cannot be adopted (flannel gives the pods of each node addresses of that node's own range")
	if _, err := rig.Run(t.Context(), "apply", plan, "--yes"); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the change")
	nothingOnNodes(t, rig, "Calico", calicoTraces)
	nothingOnNodes(t, rig, "a name of the change", `ls /etc/cni/net.d | grep -v '^10-flannel.conflist$'; true`)
	if left := kubectl(t, rig, "", "get", "crd,clusterrole,clusterrolebinding", "-o", "name"); strings.Contains(left, "calico") {
		t.Errorf("of Calico there is:\n%s", left)
	}
	if taints := kubectl(t, rig, "", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints}"); strings.Contains(taints, "NoSchedule") {
		t.Errorf("nodes take no pods: %s", taints)
	}
}

// onCalico replaces the network of a cluster that nobody uses yet, by hand, by Calico with a range of its own.
func onCalico(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	kubectl(t, rig, "", "delete", "namespace/kube-flannel", "--wait")
	kubectl(t, rig, "", "-n", "kube-system", "delete", "daemonset/kube-router", "--wait")
	for _, node := range rig.NodeNames() {
		if out, err := rig.OnNode(t.Context(), node, "sh", "-c", withoutFlannel); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	manifest, err := rig.Manifest(t.Context(), "calico")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, rig, manifest, "apply", "--server-side", "--validate=false", "-f", "-")
	kubectl(t, rig, "", "-n", "kube-system", "rollout", "status", "daemonset/calico-node", "--timeout=120s")
	kubectl(t, rig, "", "-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-dns", "--wait")
	kubectl(t, rig, "", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
	kubectl(t, rig, "", "-n", "kube-system", "rollout", "status", "deployment/calico-kube-controllers", "--timeout=120s")
}

// podCIDR is the range that the nodes' own are of.
func podCIDR(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	config := kubectl(t, rig, "", "-n", "kube-system", "get", "configmap", "kubeadm-config", "-o", "jsonpath={.data.ClusterConfiguration}")
	_, rest, _ := strings.Cut(config, "podSubnet: ")
	cidr, _, _ := strings.Cut(rest, "\n")
	return cidr
}

func kubectl(t *testing.T, rig *scenario.Rig, stdin string, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
