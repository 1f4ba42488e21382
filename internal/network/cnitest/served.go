package cnitest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Served is a snapshot with Calico's objects where definitions of projectcalico.org/v3 keep them, as
// manifests/calico-v3-crds.yaml of Calico does. It is derived from one of a cluster that keeps them in
// crd.projectcalico.org/v1: no cluster of that kind was ever looked at. What is known to differ is changed: the groups
// of objects, definitions and sources, the kind IPAMConfig, the type of BlockAffinity's deleted, and the annotation in
// which the stored form keeps metadata.
func Served(t testing.TB, snapshot *cluster.Snapshot) *cluster.Snapshot {
	t.Helper()
	served := *snapshot
	served.Other, served.Sources = nil, nil
	for i := range snapshot.Other {
		served.Other = append(served.Other, *ServedObject(&snapshot.Other[i]))
	}
	for _, source := range snapshot.Sources {
		if source.Resource == "projectcalico.org" || source.Resource == "crd.projectcalico.org" {
			served.Sources = append(served.Sources, source) // the API server was asked, and has the other one
			continue
		}
		source.Resource = servedText(source.Resource)
		served.Sources = append(served.Sources, source)
	}
	return &served
}

// ServedObject is one object of such a snapshot, or of a manifest.
func ServedObject(object *unstructured.Unstructured) *unstructured.Unstructured {
	served := object.DeepCopy()
	if served.GetAPIVersion() == cluster.CalicoStored {
		served.SetAPIVersion(cluster.CalicoServed)
		unstructured.RemoveNestedField(served.Object, "metadata", "annotations", "projectcalico.org/metadata")
	}
	switch served.GetKind() {
	case "CustomResourceDefinition":
		served.SetName(servedText(served.GetName()))
		for _, fields := range [][]string{{"spec", "group"}, {"spec", "names", "kind"}} {
			if text, ok, _ := unstructured.NestedString(served.Object, fields...); ok {
				_ = unstructured.SetNestedField(served.Object, servedText(text), fields...)
			}
		}
		versions, _, _ := unstructured.NestedSlice(served.Object, "spec", "versions")
		for _, version := range versions {
			version.(map[string]any)["name"] = "v3"
		}
		if strings.HasSuffix(served.GetName(), ".projectcalico.org") && len(versions) > 0 {
			_ = unstructured.SetNestedSlice(served.Object, versions, "spec", "versions")
		}
	case "IPAMConfig":
		served.SetKind(servedText(served.GetKind()))
	case "BlockAffinity":
		if deleted, ok, _ := unstructured.NestedString(served.Object, "spec", "deleted"); ok {
			_ = unstructured.SetNestedField(served.Object, deleted == "true", "spec", "deleted")
		}
	}
	return served
}

func servedText(text string) string {
	return strings.NewReplacer("crd.projectcalico.org", "projectcalico.org", "ipamconfigs", "ipamconfigurations",
		"IPAMConfig", "IPAMConfiguration").Replace(text)
}
