package replica

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// TestNamed: a decision about what is not there is refused before anything is written, with what may be meant;
// misspelt, it would let a consumer run twice.
func TestNamed(t *testing.T) {
	kinds := []kind{configMaps, databases, {schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}, schema.GroupKind{Group: "apps", Kind: "Deployment"}, true},
		{schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"},
			schema.GroupKind{Kind: "PersistentVolumeClaim"}, true}}
	var objects []objects.Object
	for kind, version := range map[string]string{"Deployment": "apps/v1", "PersistentVolumeClaim": "v1"} {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind,
			"metadata": map[string]any{"name": "consumer", "namespace": "shop"}}})
	}
	for _, c := range []struct {
		says, hint string
		selection  mirror.Selection
	}{
		{"", "",
			mirror.Selection{Decide: []string{"Deployment.apps shop/consumer=suspend", "Database.example.com=skip"},
				EmptyVolumes: []string{"shop/consumer"}, ImageFields: []string{"Database.example.com=spec.image"}}},
		{"--decide Deployment.apps shop/consumre: the original has no such object",
			"kubectl get Deployment", mirror.Selection{Decide: []string{"Deployment.apps shop/consumre=suspend"}}},
		{"--decide Deployment shop/consumer: the original does not serve the kind \"Deployment\"",
			"'Deployment.apps shop/consumer'", mirror.Selection{Decide: []string{"Deployment shop/consumer=suspend"}}},
		{`the kind "deployments"`, "'Deployment.apps'", mirror.Selection{Decide: []string{"deployments=suspend"}}},
		{`the kind "Unicorn.example.com"`, "CronJob.batch",
			mirror.Selection{Decide: []string{"Unicorn.example.com=skip"}}},
		{`the kind ""`, "kubectl api-resources", mirror.Selection{Decide: []string{"=skip"}}},
		{"--empty-volume data: the original has no such claim",
			"namespace/name", mirror.Selection{EmptyVolumes: []string{"data"}}},
		{`--image-field Database: the original does not serve the kind "Database"`,
			"'Database.example.com'", mirror.Selection{ImageFields: []string{"Database=spec.image"}}},
	} {
		c.selection.Namespaces = []string{"shop"}
		copier, err := NewCopier(c.selection, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		err = named(copier.Options, kinds, objects)
		if c.says == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if refusal, ok := err.(*Refusal); !ok || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(refusal.Hint(), c.hint) {
			t.Errorf("%v, want %q and the hint %q", err, c.says, c.hint)
		}
	}
}
