package canal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/canal"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

func present(t *testing.T) *cluster.Snapshot { return cnitest.Shape(t, "canal") }

func TestAcceptance(t *testing.T) {
	for _, other := range []string{"flannel", "weave", "bridge"} {
		t.Run(other, func(t *testing.T) {
			cnitest.Run(t, cnitest.Case{Driver: canal.Driver{}, Present: present(t), Other: cnitest.Golden(t, other)})
		})
	}
}

func TestDetect(t *testing.T) {
	snapshot := present(t)
	for i := range snapshot.Facts {
		snapshot.Facts[i].Links = append(snapshot.Facts[i].Links, cluster.Link{Name: "flannel.1", MTU: 1450},
			cluster.Link{Name: "cali123", MTU: 1480})
	}
	found := canal.Driver{}.Detect(snapshot)
	caps := found.Capabilities
	if found.Version != "v3.31.0" || !slices.Equal(found.PodCIDRs, []string{"10.244.0.0/16"}) || caps.VNI != 1 ||
		caps.Port != 8472 || caps.MTU != 1450 || caps.LinkMTU != 1480 || caps.Policy != cni.PolicyCalico ||
		caps.ConfName != "10-canal.conflist" || !slices.Equal(caps.HostLinks, []string{"flannel.1"}) ||
		caps.Masquerade == nil || caps.Attachment != nil || !strings.Contains(found.Untried, "(Canal)") ||
		len(found.Problems) > 0 {
		t.Errorf("found %+v", found)
	}
	if len(found.Readings) != 1 || found.Readings[0].URL != "http://127.0.0.1:9091/metrics" {
		t.Errorf("the metrics of Calico's agent are not read: %+v", found.Readings)
	}
	var order []string
	for _, part := range found.Parts {
		order = append(order, part.String())
	}
	want := []string{"DaemonSet/kube-system/canal", "ConfigMap/kube-system/canal-config",
		"ClusterRoleBinding/canal-flannel", "ClusterRoleBinding/canal-calico", "ClusterRole/flannel",
		"ServiceAccount/kube-system/canal"}
	if !slices.Equal(order, want) {
		t.Errorf("parts are %q, not %q", order, want)
	}
	residue := canal.Driver{}.Residue(found)
	if !slices.Contains(residue.Paths, "/var/lib/cni/networks/k8s-pod-network") ||
		slices.ContainsFunc(residue.Links, func(l string) bool { return strings.HasPrefix(l, "cali") }) {
		t.Errorf("residue %+v", residue)
	}
}

// TestDetectOddities: what a person must look at is a problem.
func TestDetectOddities(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*cluster.Snapshot)
		problem string
	}{
		{"bad settings", func(s *cluster.Snapshot) { s.ConfigMaps[0].Data["net-conf.json"] = "{" }, "cannot be read"},
		{"no settings", func(s *cluster.Snapshot) { s.ConfigMaps = nil }, "canal-config does not exist"},
		{"half removed", func(s *cluster.Snapshot) { s.DaemonSets = nil }, "but no DaemonSet runs flannel and Calico"},
	} {
		t.Run(test.name, func(t *testing.T) {
			snapshot := present(t)
			test.change(snapshot)
			cnitest.Understood(t, canal.Driver{}, snapshot, test.problem, nil)
		})
	}
	if found := (canal.Driver{}).Detect(cnitest.Shape(t, "rke2-canal")); !strings.Contains(found.Untried, "RKE2") ||
		len(found.Problems) > 0 {
		t.Errorf("found %+v", found)
	}
}
