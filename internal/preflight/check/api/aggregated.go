package api

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed aggregated.md
var aggregatedDoc string

// Aggregated finds APIs that pods serve on the network that is changed.
func Aggregated() check.Check {
	return check.Check{
		ID:    "api/aggregated",
		Title: "Pods on the network that is changed serve a part of the API",
		Doc:   aggregatedDoc,
		Needs: []string{"pods", "services", "apiservices"},
		Run:   aggregated,
	}
}

// oldNamespace is where Calico's operator before v1.40 makes Calico's API server.
const oldNamespace = "calico-apiserver"

// byOperator says whether Calico's operator makes an APIService, of its APIServer (pkg/render/apiserver.go of tigera/operator).
func byOperator(object *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "APIServer" && strings.HasPrefix(o.APIVersion, "operator.tigera.io/")
	})
}

func aggregated(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, object := range pass.Snapshot.OtherOf("apiregistration.k8s.io", "APIService") {
		namespace, _, _ := unstructured.NestedString(object.Object, "spec", "service", "namespace")
		name, ok, _ := unstructured.NestedString(object.Object, "spec", "service", "name")
		if !ok {
			continue // the API server's own
		}
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		f := finding.Finding{
			ID: "api/aggregated", Severity: finding.Warn, Subject: finding.Subject{Kind: "APIService", Name: object.GetName()},
			Evidence: map[string]any{"group": group, "service": namespace + "/" + name},
		}
		made := byOperator(&object)
		renewed := made && pass.InPlace() && pass.Change.To != ""
		service, pods := pass.Behind(namespace, name)
		moving, recreated := 0, false
		for _, pod := range pods {
			if check.Moves(pod) {
				moving++
				recreated = recreated || pass.Recreates(pod)
			}
		}
		switch {
		case service != nil && len(service.Spec.Selector) == 0, len(pods) > moving && !renewed:
			continue // somebody answers who does not move
		case len(pods) == 0:
			f.Message = fmt.Sprintf("nothing is behind its Service %s/%s: discovery of %s fails already, and with it the deletion of namespaces and everything that lists all kinds", namespace, name, group)
			f.Fix = "bring it back; if what served it is gone for good: kubectl delete apiservice " + shell.Word(object.GetName())
			if made {
				f.Fix = "see why the operator cannot (kubectl get tigerastatus apiserver -o yaml), or, where nobody needs it: kubectl delete apiservers.operator.tigera.io default; the operator makes the APIService anew while that is there"
			}
		case moving == 1 && recreated:
			f.Message = fmt.Sprintf("one pod serves %s: while it is re-created, discovery of the group fails, namespaces cannot be deleted, and tools that list all kinds fail", group)
			f.Fix = fmt.Sprintf("run two of it: kubectl -n %s scale deployment --replicas=2 (the one behind the Service %s)", shell.Word(namespace), shell.Word(name))
			if made {
				f.Fix = `let the operator run two of it, which writes back what others scale: kubectl patch installation default --type merge -p '{"spec":{"controlPlaneReplicas":2}}'`
			}
		case renewed:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("Calico's operator replaces the pods that serve %s (%d of them) in its own step of the upgrade", group, len(pods))
			if namespace == oldNamespace {
				f.Message += fmt.Sprintf(", and one from v1.40 on makes them in calico-system and deletes the namespace %s", oldNamespace)
			}
			f.Message += ": while none is ready, discovery of the group fails"
			f.Fix = "let nothing that needs " + group + " run meanwhile, such as calicoctl or what applies policies from a repository; kubectl get tigerastatus apiserver says when it is back"
		default:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("pods on the pod network serve %s (%d of them): while the API server reaches none, discovery of the group fails", group, moving)
		}
		f.Evidence["pods"] = moving
		found = append(found, f)
	}
	return found
}
