// Package calico checks Calico's own objects: who restores them, and whether an operator would revert a change.
package calico

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/owner"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed unowned.md
var unownedDoc string

// Unowned reports objects of Calico that were written by hand.
func Unowned() check.Check {
	return check.Check{
		ID:    "calico/unowned",
		Title: "Objects of Calico that no tool would restore",
		Doc:   unownedDoc,
		Needs: []string{"source"},
		Lacks: func(pass *check.Pass) string {
			if pass.Source.CNI != "calico" {
				return ""
			}
			return pass.MissingCalico("ippools")
		},
		Run: unowned,
	}
}

// kinds returns the kinds that people write, with what their objects define.
func kinds() [][2]string {
	return [][2]string{
		{"BGPConfiguration", "which nodes peer with which"}, {"BGPPeer", "which nodes peer with which"},
		{"BGPFilter", "which routes are accepted"}, {"FelixConfiguration", "how every node treats packets"},
		{"GlobalNetworkPolicy", "what is allowed"}, {"NetworkPolicy", "what is allowed"},
		{"GlobalNetworkSet", "what is allowed"}, {"NetworkSet", "what is allowed"},
		{"HostEndpoint", "what may reach the nodes"},
		{"IPPool", "which addresses pods get"},
		{"IPReservation", "which addresses pods do not get"},
		{"Tier", "in which order policies apply"},
	}
}

func unowned(pass *check.Pass) []finding.Finding {
	if pass.Source.CNI != "calico" {
		return nil // cni/leftover reports an earlier Calico
	}
	var found []finding.Finding
	for _, kind := range kinds() {
		var names []string
		for _, object := range pass.Snapshot.Calico(kind[0]) {
			if !madeByCalico(&object) && !owner.Marked(&object) {
				name := object.GetName()
				if namespace := object.GetNamespace(); namespace != "" {
					name = namespace + "/" + name
				}
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		plural := strings.ToLower(kind[0]) + "s"
		if strings.HasSuffix(plural, "ys") {
			plural = strings.TrimSuffix(plural, "ys") + "ies"
		}
		found = append(found, finding.Finding{
			ID: "calico/unowned", Severity: finding.Warn, Subject: finding.Subject{Kind: kind[0], Name: names[0]},
			Message: fmt.Sprintf("%d %s have no mark of a tool that would restore them (%s): they were created "+
				"by hand, and they define %s",
				len(names), plural, strings.Join(names[:min(5, len(names))], ", "), kind[1]),
			Evidence: map[string]any{"names": names[:min(50, len(names))], "count": len(names)},
			Fix: fmt.Sprintf("before the change: kubectl get %s -A -o yaml > %s.yaml, and put "+
				"the file under version control",
				pass.Snapshot.CalicoResource(plural), plural),
		})
	}
	return found
}

// madeByCalico reports whether Calico creates an object itself, so that it needs no restore.
func madeByCalico(object *unstructured.Unstructured) bool {
	name := object.GetName()
	switch object.GetKind() {
	case "IPPool":
		return strings.HasPrefix(name, "default-ipv")
	case "Tier":
		return name == "default" || name == "adminnetworkpolicy" || name == "baselineadminnetworkpolicy"
	case "FelixConfiguration":
		// Calico creates "default" with only these fields; others were written by hand.
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		for _, own := range []string{"bpfLogLevel", "floatingIPs", "logSeverityScreen", "reportingInterval",
			"bpfConnectTimeLoadBalancing",
			"bpfHostNetworkedNATWithoutCTLB", "nftablesMode", "vxlanVNI", "healthPort"} {
			delete(spec, own)
		}
		return name == "default" && len(spec) == 0
	}
	return false
}
