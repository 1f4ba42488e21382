package survey

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/step"
)

// readManifest decodes the target's manifests; none if no file is named.
func readManifest(file string) ([]unstructured.Unstructured, error) {
	if file == "" {
		return nil, nil
	}
	objects, err := kube.ReadObjects(file)
	if err != nil {
		hint := exit.HintOf(err)
		if hint == "" {
			hint = "name the file that installs the network on a new cluster"
		}
		return nil, exit.Fail(exit.Usage, hint, "the manifest: %w", err)
	}
	return objects, noSecrets(objects)
}

// noSecrets refuses manifests with a secret in them: the plan and the journal would contain it. Everyone who may read
// Migrations can read those, and they are not encrypted as Secrets are.
func noSecrets(objects []unstructured.Unstructured) error {
	for i := range objects {
		object := &objects[i]
		if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
			return exit.Fail(exit.Usage, "apply the Secret yourself first, and remove it from the file: the plan and the journal would contain its data",
				"the manifest has the Secret %s/%s", object.GetNamespace(), object.GetName())
		}
		if object.GetKind() == "CustomResourceDefinition" {
			continue // its schema has names of fields, but no values
		}
		if found := cluster.Secrets(object.Object); len(found) > 0 {
			return exit.Fail(exit.Usage, "take the value from a Secret (valueFrom.secretKeyRef, or the kind's own reference): the plan and the journal would contain it",
				"the manifest: %s has a password or token in %s", step.RefOf(object), found[0])
		}
	}
	return nil
}
