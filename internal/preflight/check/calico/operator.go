package calico

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed operator.md
var operatorDoc string

const (
	operatorID    = "calico/operator"
	operatorGroup = "operator.tigera.io"
)

// Operator reports what Calico's operator would do by itself.
func Operator() check.Check {
	return check.Check{
		ID:    operatorID,
		Title: "Calico's operator changes all nodes by itself",
		Doc:   operatorDoc,
		Needs: []string{"nodes"},
		Lacks: func(pass *check.Pass) string {
			if ok, why := pass.Snapshot.Has(operatorGroup); !ok &&
				len(pass.Snapshot.OtherOf(operatorGroup, "Installation")) == 0 && pass.Snapshot.UsesCalico() {
				return operatorGroup + ": " + why
			}
			return ""
		},
		Run: operator,
	}
}

func operator(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	installations := pass.Snapshot.OtherOf(operatorGroup, "Installation")
	for _, object := range installations {
		found = append(found, inPlace(pass, installation{object}))
	}
	for _, object := range pass.Manifest {
		// else the plan compares it
		if object.GroupVersionKind().Group == operatorGroup && object.GetKind() == "Installation" &&
			len(installations) == 0 {
			found = append(found, toCome(pass, installation{object}))
		}
	}
	return found
}

// installation is the operator's own object (api/v1/installation_types.go of tigera/operator), with its defaults.
type installation struct{ object unstructured.Unstructured }

func (i installation) text(otherwise string, fields ...string) string {
	if value, ok, _ := unstructured.NestedString(i.object.Object, fields...); ok && value != "" {
		return value
	}
	return otherwise
}

// settings returns the settings that decide the path of packets.
func (i installation) settings() string {
	parts := []string{"variant " + i.text("Calico", "spec", "variant"),
		"CNI plugin " + i.text("Calico", "spec", "cni", "type"),
		"data plane " + i.text("Iptables", "spec", "calicoNetwork", "linuxDataplane")}
	if bgp := i.text("", "spec", "calicoNetwork", "bgp"); bgp != "" {
		parts = append(parts, "BGP "+bgp)
	}
	pools, _, _ := unstructured.NestedSlice(i.object.Object, "spec", "calicoNetwork", "ipPools")
	for _, pool := range pools {
		if p, ok := pool.(map[string]any); ok {
			cidr, _ := p["cidr"].(string)
			encapsulation, _ := p["encapsulation"].(string)
			parts = append(parts, strings.TrimSpace("pool "+cidr+" "+encapsulation))
		}
	}
	return strings.Join(parts, ", ")
}

// atOnce returns how many of n agents may be unavailable at a time, and the value of maxUnavailable.
func (i installation) atOnce(n int) (count int, value string) {
	field, ok, _ := unstructured.NestedFieldNoCopy(i.object.Object, "spec", "nodeUpdateStrategy",
		"rollingUpdate", "maxUnavailable")
	if !ok || field == nil {
		return 1, "1"
	}
	parsed := intstr.Parse(fmt.Sprint(field))
	count, err := intstr.GetScaledValueFromIntOrPercent(&parsed, n, true) // as the controller of DaemonSets rounds
	if err != nil {
		return 0, fmt.Sprint(field)
	}
	return max(1, min(count, n)), fmt.Sprint(field)
}

func (i installation) subject() finding.Subject {
	return finding.Subject{Kind: "Installation", Name: i.object.GetName()}
}

// inPlace reports a running operator. It blocks changes of Calico that the operator would revert: all except another
// version of the operator itself.
func inPlace(pass *check.Pass, i installation) finding.Finding {
	nodes := len(pass.Snapshot.Nodes)
	count, value := i.atOnce(nodes)
	f := finding.Finding{
		ID: operatorID, Severity: finding.Info, Subject: i.subject(),
		Message: fmt.Sprintf("the operator manages Calico (%s) and reverts what others change; when this "+
			"object or the operator's version changes, it replaces calico-node on all %d nodes by itself, %d at "+
			"a time (maxUnavailable %s), and waits only for readiness",
			i.settings(), nodes, count, value),
		Evidence: map[string]any{"settings": i.settings(), "nodes": nodes, "atOnce": count},
		Fix: "theseus explain " + operatorID +
			" says how to stage the change; keep the operator's own steps small: " + patch(i.object.GetName()),
	}
	switch {
	case pass.Change.To == "calico" && (len(pass.Manifest) == 0 || ofOperator(pass.Manifest)):
		f.Severity = finding.Warn
		f.Message += "; during a plan for another release of the operator, Theseus denies the deletion of these " +
			"pods, except of the one whose turn it is"
		f.Fix = "read in the plan what the operator does by itself, on all nodes at once: theseus plan --to calico " +
			"--manifest tigera-operator.yaml"
	case pass.Change.To != "", pass.Change.Pool != "", pass.Change.Encapsulation != "":
		f.Severity = finding.Block
		f.Message += "; it would revert what a plan of Theseus changes"
	case count != 1:
		f.Severity = finding.Warn
	}
	return f
}

// ofOperator reports whether a manifest installs the operator.
func ofOperator(manifest []unstructured.Unstructured) bool {
	return slices.ContainsFunc(manifest, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == "tigera-operator"
	})
}

// toCome reports an operator in the target's manifest, and whether it can be made to wait for each node.
func toCome(pass *check.Pass, i installation) finding.Finding {
	if pass.Target != nil && pass.Target.Maker != nil {
		return finding.Finding{
			ID: operatorID, Severity: finding.Info, Subject: i.subject(),
			Message: fmt.Sprintf("the manifest leaves the installation to Calico's operator (%s), which by itself "+
				"would start calico-node on all %d nodes at once; the plan's Installation makes it wait "+
				"for each node's label, and stages the CNI configuration",
				i.settings(), len(pass.Snapshot.Nodes)),
			Evidence: map[string]any{"settings": i.settings(), "nodes": len(pass.Snapshot.Nodes)},
			Fix:      "read in the plan how it changes your Installation: theseus plan; theseus explain " + operatorID,
		}
	}
	return finding.Finding{
		ID: operatorID, Severity: finding.Block, Subject: i.subject(),
		Message: fmt.Sprintf("the manifest leaves the installation to Calico's operator (%s): it would start "+
			"calico-node on all %d nodes at once, and each would write its CNI configuration under its real name; "+
			"from then on new pods on all nodes are on Calico, unmeasured",
			i.settings(), len(pass.Snapshot.Nodes)),
		Evidence: map[string]any{"settings": i.settings(), "nodes": len(pass.Snapshot.Nodes)},
		Fix: "plan with the release's manifest without the operator (manifests/calico-vxlan.yaml) and the same " +
			"pools; the operator can take over that installation afterwards, in a separate change: theseus explain " +
			operatorID,
	}
}

func patch(name string) string {
	return "kubectl patch installation " + shell.Word(name) +
		` --type merge -p '{"spec":{"nodeUpdateStrategy":{"rollingUpdate":{"maxUnavailable":1}}}}'`
}
