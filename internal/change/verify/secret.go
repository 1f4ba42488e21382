package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// KeepsSecrets refuses a plan whose journal would hold a secret: the way back from an action is what was there before,
// and the journal is not protected as Secrets are. A snapshot says where a secret was, by cluster.Redacted.
func KeepsSecrets(snapshot *cluster.Snapshot, p *kind.Plan) error {
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			ref, lost := overwritten(snapshot, a)
			if lost {
				return kind.Refuse("let the value come from a Secret (valueFrom.secretKeyRef, or the kind's own "+
					"reference to a Secret), and plan again",
					"%s contains a password or token, and step %s would write it to the journal", ref, s.ID)
			}
		}
	}
	return nil
}

// overwritten says which object an action changes, and whether a secret is in what it replaces.
func overwritten(snapshot *cluster.Snapshot, a step.Action) (step.Ref, bool) {
	ref := a.Ref()
	switch do := a.Do.(type) {
	case step.Apply, step.Delete:
		return ref, redacted(found(snapshot, ref))
	case step.Patch:
		var patch map[string]any
		if json.Unmarshal(do.Merge, &patch) != nil {
			return ref, false // the verifier refuses it
		}
		return ref, replacesSecret(found(snapshot, ref), patch)
	}
	return step.Ref{}, false
}

// found is an object of the snapshot as a tree, or nil.
func found(s *cluster.Snapshot, ref step.Ref) map[string]any {
	var typed any
	switch ref.Kind {
	case "DaemonSet":
		if set := s.DaemonSet(ref.Namespace, ref.Name); set != nil {
			typed = set
		}
	case "ConfigMap":
		if config := s.ConfigMap(ref.Namespace, ref.Name); config != nil {
			typed = config
		}
	case "Deployment":
		for i := range s.Deployments {
			if d := &s.Deployments[i]; d.Namespace == ref.Namespace && d.Name == ref.Name {
				typed = d
			}
		}
	default:
		return other(s, ref)
	}
	if typed == nil {
		return nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil // an API type always converts
	}
	return tree
}

func other(s *cluster.Snapshot, ref step.Ref) map[string]any {
	for i := range s.Other {
		if at := step.RefOf(&s.Other[i]); at == ref {
			return s.Other[i].Object
		}
	}
	return nil
}

// replacesSecret reports whether a merge patch replaces a value that has a secret in it.
func replacesSecret(object, patch map[string]any) bool {
	for key, next := range patch {
		now := object[key]
		below, deep := now.(map[string]any)
		if more, ok := next.(map[string]any); ok && deep {
			if replacesSecret(below, more) {
				return true
			}
		} else if redacted(now) {
			return true
		}
	}
	return false
}

// redacted reports whether a value has a part that a snapshot left out.
func redacted(value any) bool {
	switch value := value.(type) {
	case string:
		return strings.Contains(value, cluster.Redacted)
	case map[string]any:
		for _, one := range value {
			if redacted(one) {
				return true
			}
		}
	case []any:
		for _, one := range value {
			if redacted(one) {
				return true
			}
		}
	}
	return false
}

// redactedNowhere refuses a plan that would write what a snapshot has instead of a secret: the secret would be lost.
func redactedNowhere() kind.Rule {
	writes := func(s *step.Step) error {
		for _, actions := range [][]step.Action{s.Actions, s.Undo} {
			for i := range actions {
				if writesRedacted(&actions[i]) {
					return fmt.Errorf("action %s writes %q, which replaces a secret in snapshots",
						actions[i].ID, cluster.Redacted)
				}
			}
		}
		return nil
	}
	return kind.Rule{Before: writes}
}

func writesRedacted(a *step.Action) bool {
	switch do := a.Do.(type) {
	case step.Apply:
		return do.Object != nil && redacted(do.Object.Object)
	case step.Patch:
		return bytes.Contains(do.Merge, []byte(cluster.Redacted))
	}
	return bytes.Contains(a.Args(), []byte(cluster.Redacted))
}
