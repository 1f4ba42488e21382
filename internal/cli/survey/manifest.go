package survey

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/propose"
)

// readManifest decodes the target's manifests; none if the change names none.
func readManifest(change v1alpha1.ChangeSpec) (objects []unstructured.Unstructured, err error) {
	from := change.ManifestFrom
	switch {
	case from != nil && change.Manifest == "" && from.ConfigMap != "":
		return nil, exit.Fail(exit.Usage, "save the key as a file, and add --manifest FILE",
			"only the controller reads the manifest from the ConfigMap %s", from.ConfigMap)
	case from != nil && change.Manifest == "":
		objects, err = kube.DecodeObjects("manifestFrom.inline", strings.NewReader(from.Inline))
	case change.Manifest != "":
		return Manifest(change.Manifest)
	}
	return decoded(objects, err)
}

// Manifest decodes a file of manifests. One that has secrets is refused.
func Manifest(file string) ([]unstructured.Unstructured, error) {
	return decoded(kube.ReadObjects(file))
}

func decoded(objects []unstructured.Unstructured, err error) ([]unstructured.Unstructured, error) {
	if err != nil {
		hint := exit.HintOf(err)
		if hint == "" {
			hint = "name the file that installs the network on a new cluster"
		}
		return nil, exit.Fail(exit.Usage, hint, "the manifest: %w", err)
	}
	if err := propose.NoSecrets(objects); err != nil {
		return nil, exit.Fail(exit.Usage, exit.HintOf(err), "%w", err)
	}
	return objects, nil
}
