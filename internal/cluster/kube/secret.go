package kube

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// keepsSecret refuses to record the object that an action replaces if it contains a secret: the record goes into the
// journal, which is not protected like Secrets. Plans are refused for the same reason, so here the object was changed
// after planning.
func keepsSecret(ref step.Ref, replaced map[string]any) error {
	where := ""
	if found := cluster.Secrets(replaced); len(found) > 0 {
		where = found[0]
	}
	if ref.Kind == "Secret" && ref.APIVersion == "v1" {
		where = "data"
	}
	if where == "" {
		return nil
	}
	return engine.WithHint(fmt.Errorf("%s holds a secret in %s, and the journal would hold it too", ref, where),
		"let the value come from a Secret (valueFrom.secretKeyRef, or the kind's own reference to a Secret), and go on")
}
