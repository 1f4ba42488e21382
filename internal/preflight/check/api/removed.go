package api

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed removed.md
var removedDoc string

//go:embed removed.json
var removedTable []byte

// removal is the release in which Kubernetes stops serving a kind in a version.
type removal struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Minor      int    `json:"minor"` // of Kubernetes 1, the first that does not serve it
	Instead    string `json:"instead,omitempty"`
}

var removals = sync.OnceValue(func() map[[2]string]removal {
	var list []removal
	if err := json.Unmarshal(removedTable, &list); err != nil {
		panic(fmt.Sprintf("the table of removed APIs: %v", err)) // it is built in, and a test reads it
	}
	all := make(map[[2]string]removal, len(list))
	for _, r := range list {
		all[[2]string{r.APIVersion, r.Kind}] = r
	}
	return all
})

// Removed reports objects and manifests in versions that the API server does not serve, now or after an upgrade.
func Removed() check.Check {
	return check.Check{
		ID:    "api/removed",
		Title: "An object or a manifest uses a removed API version",
		Doc:   removedDoc,
		Needs: []string{"customresourcedefinitions"},
		Lacks: func(pass *check.Pass) string {
			if _, err := versionAfter(pass); err != nil {
				return "the input lacks the version of Kubernetes: add the output of kubectl version -o yaml"
			}
			return ""
		},
		Run: removed,
	}
}

// versionAfter returns the version of Kubernetes after the change.
func versionAfter(pass *check.Pass) (*version.Version, error) {
	if pass.Change.KubernetesTo != "" {
		return version.ParseGeneric(pass.Change.KubernetesTo)
	}
	return version.ParseGeneric(pass.Snapshot.Kubernetes)
}

func removed(pass *check.Pass) []finding.Finding {
	after, err := versionAfter(pass)
	if err != nil {
		return nil // Lacks has reported it
	}
	var found []finding.Finding
	for i := range pass.Manifest {
		o := &pass.Manifest[i]
		if r, ok := removals()[[2]string{o.GetAPIVersion(), o.GetKind()}]; ok {
			found = append(found, judge(r, after, subjectOf(o.GetKind(), o.GetNamespace(), o.GetName()), true))
		}
	}
	see := func(apiVersion, kind, namespace, name string) {
		if r, ok := removals()[[2]string{apiVersion, kind}]; ok {
			found = append(found, judge(r, after, subjectOf(kind, namespace, name), false))
		}
	}
	for i := range pass.Snapshot.Budgets {
		b := &pass.Snapshot.Budgets[i]
		see(b.APIVersion, b.Kind, b.Namespace, b.Name)
	}
	for i := range pass.Snapshot.NetworkPolicies {
		p := &pass.Snapshot.NetworkPolicies[i]
		see(p.APIVersion, p.Kind, p.Namespace, p.Name)
	}
	for i := range pass.Snapshot.Other {
		o := &pass.Snapshot.Other[i]
		see(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
		if o.GetKind() == "CustomResourceDefinition" {
			found = append(found, definition(o)...)
		}
	}
	return found
}

func subjectOf(kind, namespace, name string) finding.Subject {
	return finding.Subject{Kind: kind, Namespace: namespace, Name: name}
}

func judge(r removal, after *version.Version, subject finding.Subject, manifest bool) finding.Finding {
	f := finding.Finding{
		ID: "api/removed", Severity: finding.Info, Subject: subject,
		Evidence: map[string]any{"apiVersion": r.APIVersion, "removedIn": fmt.Sprintf("v1.%d", r.Minor),
			"instead": r.Instead, "kubernetes": after.String()},
	}
	gone := !after.LessThan(version.MajorMinor(1, uint(r.Minor)))
	switch {
	case gone && manifest:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("the manifest uses %s, which Kubernetes v1.%d removed: it cannot be applied to v%s",
			r.APIVersion, r.Minor, after)
	case gone:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf(
			"it was read as %s, which Kubernetes v1.%d removed: programs that use this version fail on v%s",
			r.APIVersion, r.Minor, after)
	default:
		f.Message = fmt.Sprintf("Kubernetes v1.%d removes %s", r.Minor, r.APIVersion)
	}
	if r.Instead != "" {
		f.Fix = "write it as " + r.Instead
	}
	return f
}

// definition reports a CRD whose objects may still be stored in versions that are no longer served.
func definition(o *unstructured.Unstructured) []finding.Finding {
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	var served []string
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		if name, ok := fields["name"].(string); ok && fields["served"] == true {
			served = append(served, name)
		}
	}
	stored, _, _ := unstructured.NestedStringSlice(o.Object, "status", "storedVersions")
	var lost []string
	for _, name := range stored {
		if !slices.Contains(served, name) {
			lost = append(lost, name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return []finding.Finding{{
		ID: "api/removed", Severity: finding.Warn, Subject: subjectOf(o.GetKind(), "", o.GetName()),
		Message: fmt.Sprintf("its objects may be stored as %s, which is not served: such objects "+
			"cannot be read, and a newer CRD without that version cannot be applied", strings.Join(lost, ", ")),
		Evidence: map[string]any{"stored": stored, "served": served},
		Fix: "rewrite every object once (kubectl get -A -o yaml, then kubectl replace), then remove the " +
			"version from status.storedVersions",
	}}
}
