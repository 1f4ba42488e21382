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

// Aggregated reports API groups that are served by pods on the network that is changed.
func Aggregated() check.Check {
	return check.Check{
		ID:    "api/aggregated",
		Title: "Pods on the network that is changed serve a part of the API",
		Doc:   aggregatedDoc,
		Needs: []string{"pods", "services", "apiservices"},
		Run:   aggregated,
	}
}

// oldNamespace is where Calico's operator before v1.40 creates Calico's API server.
const oldNamespace = "calico-apiserver"

// byOperator reports whether Calico's operator created an APIService for its APIServer object
// (pkg/render/apiserver.go of tigera/operator).
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
			ID: "api/aggregated", Severity: finding.Warn,
			Subject:  finding.Subject{Kind: "APIService", Name: object.GetName()},
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
			continue // a pod that does not move answers
		case len(pods) == 0:
			f.Message = fmt.Sprintf("its Service %s/%s has no pods: discovery of %s already fails, and so do "+
				"the deletion of namespaces and tools that list all kinds", namespace, name, group)
			f.Fix = "restore its pods; if the program was removed permanently: kubectl delete apiservice " +
				shell.Word(object.GetName())
			if made {
				f.Fix = "see why the operator does not start them (kubectl get tigerastatus apiserver -o " +
					"yaml); if this API is not used: kubectl delete apiservers.operator.tigera.io default " +
					"(while that object exists, the operator recreates the APIService)"
			}
		case moving == 1 && recreated:
			f.Message = fmt.Sprintf(
				"one pod serves %s: while it is recreated, discovery of the group fails, namespaces cannot be "+
					"deleted, and tools that list all kinds fail", group)
			f.Fix = fmt.Sprintf(
				"run two pods: kubectl -n %s scale deployment --replicas=2 (the one behind the Service %s)",
				shell.Word(namespace), shell.Word(name))
			if made {
				f.Fix = `let the operator run two pods (it reverts a kubectl scale): ` +
					`kubectl patch installation default --type merge -p '{"spec":{"controlPlaneReplicas":2}}'`
			}
		case renewed:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("Calico's operator replaces the pods that serve %s (%d of them) in its own step "+
				"of the upgrade", group, len(pods))
			if namespace == oldNamespace {
				f.Message += fmt.Sprintf(
					"; from v1.40 on it creates them in calico-system and deletes the namespace %s", oldNamespace)
			}
			f.Message += ": while none is ready, discovery of the group fails"
			f.Fix = "during the upgrade, pause everything that needs " + group +
				", such as calicoctl or a tool that applies policies " +
				"from a repository; kubectl get tigerastatus apiserver shows when it is available again"
		default:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("%d pods on the pod network serve %s: while the API server reaches none of them, "+
				"discovery of the group fails", moving, group)
		}
		f.Evidence["pods"] = moving
		found = append(found, f)
	}
	return found
}
