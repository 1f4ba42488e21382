package api

import (
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed aggregated.md
var aggregatedDoc string

// Aggregated finds APIs that pods serve on the network that is changed.
func Aggregated() check.Check {
	return check.Check{
		ID:    "api/aggregated",
		Title: "A part of the API is served by pods on the network that is changed",
		Doc:   aggregatedDoc,
		Needs: []string{"pods", "services", "apiservices"},
		Run:   aggregated,
	}
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
		service, pods := pass.Behind(namespace, name)
		moving, recreated := 0, false
		for _, pod := range pods {
			if check.Moves(pod) {
				moving++
				recreated = recreated || pass.Recreates(pod)
			}
		}
		switch {
		case service != nil && len(service.Spec.Selector) == 0, len(pods) > moving:
			continue // somebody answers who does not move
		case moving == 0:
			f.Message = fmt.Sprintf("nothing is behind its Service %s/%s: discovery of %s fails already, and with it the deletion of namespaces and everything that lists all kinds", namespace, name, group)
			f.Fix = "bring it back, or: kubectl delete apiservice " + object.GetName()
		case moving == 1 && recreated:
			f.Message = fmt.Sprintf("one pod serves %s: while it is re-created, discovery of the group fails, namespaces cannot be deleted, and tools that list all kinds fail", group)
			f.Fix = fmt.Sprintf("run two of it: kubectl -n %s scale deployment --replicas=2 (the one behind the Service %s)", namespace, name)
		default:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("pods on the pod network serve %s (%d of them): while the API server reaches none, discovery of the group fails", group, moving)
		}
		f.Evidence["pods"] = moving
		found = append(found, f)
	}
	return found
}
